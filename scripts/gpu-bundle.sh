#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# One folder for a machine with a GPU: gpu-bundle.sh FOLDER [pack.py's options]. There: python3 FOLDER/run.py
#
# $MPT_TORCH_PYTHON is a Python with PyTorch, onnx, ml_dtypes and scikit-learn, which exports the models to be timed (--models= leaves
# these out; otherwise a model that cannot be packed fails the call). $MPT_BUNDLE_SCRATCH keeps exported models between runs.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
cd "$MPT_ROOT"
[ $# -ge 1 ] || die "expected a folder: gpu-bundle.sh FOLDER"
out="$1"
shift
[ ! -e "$out" ] || [[ " $* " = *" --resume "* ]] || die "'$out' exists (--resume goes on with one whose packing was cut off)"
scratch="${MPT_BUNDLE_SCRATCH:-}"
if [ -z "$scratch" ]; then
  scratch="$(mktemp -d)"
  trap 'rm -rf "$scratch"' EXIT
fi
python="${MPT_TORCH_PYTHON:-python}"
if [[ " $* " != *" --models= "* ]] && ! "$python" -c 'import torch, onnx' 2>/dev/null; then
  die "no PyTorch, so no models to be timed: name a Python that has it in MPT_TORCH_PYTHON, or leave them out by --models="
fi
"$python" benchmarks/gpu/pack.py "$out" --scratch "$scratch" "$@"
# Machines take 64 MiB, the tracked files (10 MiB) among them.
most=$((54 * 1024 * 1024))
size="$(du -sb "$out" | cut -f1)"
[ "$size" -le "$most" ] || die "the bundle takes $size bytes, more than $most: pack fewer --policies or --types"
say "$out: $size bytes; on the machine with the GPU: python3 $(basename "$out")/run.py first --seconds 470"
