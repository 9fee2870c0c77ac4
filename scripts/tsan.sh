#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tsan.sh: ThreadSanitizer over the runtime's tests and over the parallel loops of emitted libraries. Ends in "clean", or in status 1.
#
# The libraries are compiled to LLVM's text (--emit=llvm), and clang instruments that. oneDNN is not instrumented: its work
# in several threads is not looked at. No report is suppressed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"

scripts/build.sh release mpt-opt
scripts/build.sh tsan TrainerTest StateTest IndicesTest train_threads race
export TSAN_OPTIONS="exitcode=66 halt_on_error=0"

if build/tsan/bin/race >/dev/null 2>&1; then
  die "the planted race was not noticed"
fi
for test in TrainerTest IndicesTest StateTest; do
  say "$test"
  build/tsan/bin/$test
done

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
PYTHONPATH=python .venv/bin/python scripts/robustness.py --model "$folder/tokens.onnx"
for policy in fp32 amp-f16 als-f16 amp-bf16 fp8-hybrid; do
  out="$folder/$policy"
  build/release/bin/mpt-opt "$folder/tokens.onnx" --quiet --loss=softmax-cross-entropy --optimizer=adam,lr=1e-3 \
    --clip-norm=1 --policy=$policy --emit=llvm -o "$out"
  # One text holds several modules. Functions are instrumented where they have the attribute.
  csplit -s -z -f "$out/module" -b "%02d.ll" "$out/tokens.ll" '/^; ModuleID/' '{*}'
  sed -i -E 's/^(define .*[^ ]) (#[0-9]+ )?\{$/\1 sanitize_thread \2{/' "$out"/module*.ll
  grep -q "sanitize_thread" "$out"/module*.ll || die "no function of $policy is instrumented"
  clang-22 -x ir -O1 -march=native -fsanitize=thread -fPIC -shared -Wno-override-module "$out"/module*.ll \
    -o "$out/libtokens.so" -Lbuild/tsan/lib -lmpt_rt -Wl,-rpath,"$MPT_ROOT/build/tsan/lib"
  say "trainers of $policy"
  build/tsan/bin/train_threads "$out"
done
say "clean"
