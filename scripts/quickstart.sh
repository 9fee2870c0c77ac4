#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to trained models: set-up, a release build of compiler and runtime, then the quickstart example's table.
# Nothing of tests; scripts/test.sh brings the rest.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"

scripts/setup.sh
scripts/build.sh release mpt-opt mpt-run mpt_rt
[ -e examples/quickstart/quickstart.py ] || die "the build is done, but examples/quickstart/quickstart.py is not in this checkout"
export MPT_BUILD="$MPT_ROOT/build/release"
exec python examples/quickstart/quickstart.py "$@"
