#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests: set-up, release build, repository checks, C++ unit tests, lit tests, Python tests. With --quick no set-up, no
# checks, nothing marked as slow, and of the Python tests the first case of each function: some four minutes on two cores.
# The last line is "N passed, N failed" over all of them; the status is non-zero when anything failed.
set -uo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null
cd "$MPT_ROOT"

build="$MPT_ROOT/build/release"
results="$build/test-results"
passed=0
failed=0

tally() {
  passed=$((passed + $1))
  failed=$((failed + $2))
  say "$3: $1 passed, $2 failed"
}

finish() {
  printf '%d passed, %d failed\n' "$passed" "$failed"
  [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
  exit
}

# A runner's own JUnit file says how many tests there were; a runner that died before writing one counts as a failure.
# Skipped tests are listed with their reasons.
tally_junit() {
  local counts
  counts="$(python - "$1" "$3" <<'PY'
import collections
import sys
import xml.etree.ElementTree as tree
total = bad = 0
reasons = collections.defaultdict(list)
try:
    root = tree.parse(sys.argv[1]).getroot()
    for suite in ([root] if root.tag == "testsuite" else root.iter("testsuite")):
        skipped = int(suite.get("skipped", 0)) + int(suite.get("disabled", 0))
        wrong = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        total, bad = total + int(suite.get("tests", 0)) - skipped - wrong, bad + wrong
    for case in root.iter("testcase"):
        if (skip := case.find("skipped")) is not None:
            # ctest has the test's words beside a message of its own.
            reasons[(case.findtext("system-out") or skip.get("message") or "no reason given").strip()].append(case.get("name"))
except (OSError, tree.ParseError):
    pass
for reason, names in reasons.items():
    print(f"{len(names)} skipped ({names[0]}{', ...' if len(names) > 1 else ''}): {reason}", file=sys.stderr)
print(total, bad or int(sys.argv[2] != "0"))
PY
  )" || counts="0 1"
  # shellcheck disable=SC2086
  tally $counts "$2"
}

run_checks() {
  local check ok=0 bad=0
  for check in .ci/check_*; do
    if "$check"; then ok=$((ok + 1)); else bad=$((bad + 1)) && say "$check failed"; fi
  done
  tally "$ok" "$bad" "repository checks"
}

case "$*" in
"") quick=() ;;
--quick) quick=(--quick) ;;
*) die "expected --quick or nothing, got '$*'" ;;
esac

[ ${#quick[@]} -gt 0 ] || scripts/setup.sh --libraries || { tally 0 1 "set-up"; finish; }
scripts/build.sh release || { run_checks; tally 0 1 "build"; finish; }
if command -v aarch64-linux-gnu-g++ >/dev/null; then
  scripts/build-runtime.sh aarch64 || { tally 0 1 "the runtime for AArch64"; finish; }
fi
rm -rf "$results" && mkdir -p "$results"
[ ${#quick[@]} -gt 0 ] || run_checks

ctest --test-dir "$build/test" ${quick:+-LE slow} --output-on-failure --no-tests=ignore -j 2 --output-junit "$results/ctest.xml"
tally_junit "$results/ctest.xml" "C++ tests" $?

lit -s -v --xunit-xml-output="$results/lit.xml" "$build/test"
tally_junit "$results/lit.xml" "lit tests" $?

python_tests=()
for folder in test/python test/e2e python/tests; do [ -d "$folder" ] && python_tests+=("$folder"); done
MPT_BUILD="$build" OMP_WAIT_POLICY=passive python -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist worksteal --junitxml="$results/pytest.xml" "${quick[@]}" "${python_tests[@]}"
status=$?
[ $status -eq 5 ] && status=0 # no Python test collected
tally_junit "$results/pytest.xml" "Python tests" $status

finish
