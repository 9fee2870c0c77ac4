#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# build-runtime.sh aarch64 [FOLDER]: cross-builds libmpt_rt for AArch64 Linux, without oneDNN and debug symbols, into
# FOLDER/aarch64-linux-gnu. FOLDER is build/release/lib by default, where that build's mpt-opt looks with
# --mtriple=aarch64-linux-gnu; for an installation it is PREFIX/lib.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"

[ "${1:-}" = aarch64 ] || die "expected aarch64, got '${1:-}'"
[ -d /usr/aarch64-linux-gnu/include/c++ ] || die "no C++ library for AArch64: install g++-aarch64-linux-gnu"
folder="${2:-build/release/lib}/aarch64-linux-gnu"
scripts/build.sh aarch64 mpt_rt library_server
mkdir -p "$folder"
llvm-strip-22 -o "$folder/libmpt_rt.so" build/aarch64/lib/libmpt_rt.so
say "$folder/libmpt_rt.so: $(stat -c %s "$folder/libmpt_rt.so") bytes"
