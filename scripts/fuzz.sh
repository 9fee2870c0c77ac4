#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [SECONDS] [FOLDER] [MODELS...]: fuzzes the importer under address and undefined-behaviour sanitizers, 600 seconds
# by default. FOLDER keeps the corpus and, in crashes/, inputs that failed; the status is non-zero when some did. Folders
# MODELS add seeds to the ones of test/fuzz/make_seeds.py, which have every form of training graph.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"

seconds="${1:-600}"
folder="${2:-build/asan/fuzz}"
scripts/build.sh asan fuzz_import
mkdir -p "$folder/corpus" "$folder/crashes"
python test/fuzz/make_seeds.py "$folder/corpus" "${@:3}"

# MLIR's shared library is not instrumented: it writes into allocators and containers that our code annotates.
export ASAN_OPTIONS="allow_user_poisoning=0:detect_container_overflow=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1${UBSAN_OPTIONS:+:$UBSAN_OPTIONS}"
exec build/asan/bin/fuzz_import -max_total_time="$seconds" -max_len=65536 -timeout=60 -rss_limit_mb=4096 \
  -print_final_stats=1 -artifact_prefix="$folder/crashes/" "$folder/corpus"
