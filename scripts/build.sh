#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build.sh [PRESET] [TARGET...]: configures build/PRESET where needed and builds it (release by default).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"

preset="${1:-release}"
shift || true
# Warnings are errors with the compiler that setup.sh installs; builds by cmake itself are tolerant of other compilers.
werror="${MPT_WERROR:-ON}"
is_configured() {
  [ -e "build/$preset/build.ninja" ] && grep -qxF "MPT_DEPS_DIR:PATH=$MPT_DEPS_DIR" "build/$preset/CMakeCache.txt" &&
    grep -qxF "MPT_WERROR:BOOL=$werror" "build/$preset/CMakeCache.txt"
}
if ! is_configured; then
  say "configuring build/$preset"
  cmake --preset "$preset" -DMPT_DEPS_DIR="$MPT_DEPS_DIR" -DMPT_WERROR="$werror" >"/tmp/mpt-configure.$$" 2>&1 || {
    cat "/tmp/mpt-configure.$$" >&2
    rm -f "/tmp/mpt-configure.$$"
    die "configuring the $preset preset failed; has scripts/setup.sh been run?"
  }
  rm -f "/tmp/mpt-configure.$$"
fi
say "building build/$preset"
ninja -C "build/$preset" ${MPT_JOBS:+-j "$MPT_JOBS"} "$@" || die "the build failed"
