#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# corpus.sh OUT [--generators DIR] [--models a,b] [--venv DIR]: exports the training corpus from PyTorch and writes the
# float64 and float32 references that test/e2e/check_corpus.py compares with. Uses an environment of its own, because
# nothing else here needs PyTorch. Takes about ten minutes on two cores; a second run remakes the graphs, and references
# of those alone that changed.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null

usage() { sed -n '3,6s/^# //p' "$0"; exit 2; }
out="" generators="$MPT_ROOT/../shared/corpus" venv=""
models=mlp,mlp_mse,mlp_l1,mlp_bce,lenet,lenet_classic,alexnet,vgg11_bn,resnet18,resnet50,inception,mobilenet,unet
models+=,unet_resize,dcgan_g,dcgan_d,bert,bert_sdpa,gpt2,gpt2_sdpa,vit,llama,transformer,dlrm
while [ $# -gt 0 ]; do
  case "$1" in
    --generators | --models | --venv) [ $# -ge 2 ] || usage; declare "${1#--}=$2"; shift 2 ;;
    -*) usage ;;
    *) [ -z "$out" ] || usage; out="$1"; shift ;;
  esac
done
[ -n "$out" ] || usage
[ -e "$generators/make_forward.py" ] || die "expected make_forward.py in $generators; name the folder with --generators"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
venv="${venv:-$out/venv}"

stamp="torch==2.13.0 onnx==1.23.2 onnxruntime==1.31.1 onnxscript==0.7.2"
if [ "$(cat "$venv/.packages" 2>/dev/null)" != "$stamp" ]; then
  say "installing PyTorch and the exporters into $venv (some minutes)"
  python3 -m venv "$venv" || die "could not make $venv"
  for package in $stamp; do
    "$venv/bin/python" -m pip install -q --disable-pip-version-check "$package" || die "pip could not install $package"
  done
  printf '%s\n' "$stamp" >"$venv/.packages"
fi

unset PYTHONPATH
say "exporting the models"
"$venv/bin/python" "$generators/make_forward.py" --out "$out/forward" --variants logits,loss,composed --models "$models"
say "exporting some with symbolic dimensions"
dynamic=bert,dcgan_d,dlrm,gpt2,lenet,lstm_cls,mlp,resnet18,unet,vit
"$venv/bin/python" "$generators/make_forward.py" --dynamic --out "$out/dynamic" --models "$dynamic" --forms ts,dyn,opt --variants logits,loss
say "computing references"
# One graph (mlp_l1's fused loss through the TorchScript exporter) has no ONNX operator, which the log names.
"$venv/bin/python" "$MPT_ROOT/test/e2e/make_references.py" --generators "$generators" --forward "$out/forward" \
  --out "$out/ref" --models "$models" --spread 16 || say "some references are missing (see above)"
"$venv/bin/python" "$MPT_ROOT/test/e2e/make_references.py" --generators "$generators" --forward "$out/dynamic" \
  --out "$out/ref/dynamic" --models "$dynamic" --variants loss.dynamic --spread 16 || say "some references are missing (see above)"
say "done: .venv/bin/python test/e2e/check_corpus.py $out"
