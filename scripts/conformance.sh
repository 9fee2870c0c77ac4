#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# conformance.sh [--gradient | --storage | --aarch64] [--write] [--filter REGEX] [--jobs N]: runs the whole node suite of
# onnx.backend.test through libraries that mpt-opt emits, and compares with docs/results/conformance.tsv; with --aarch64 through
# libraries for that architecture, under emulation (test/emulated). Or the gradients of the suite's float cases, and
# gradients.tsv; or its FP32 cases in 16- and 8-bit storage, and storage.tsv. --write replaces that file and the page beside it.
# The first run makes the cases, which takes a minute; a run takes some minutes on two cores, and under emulation half an hour.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null

build="$MPT_ROOT/build/release"
[ -x "$build/bin/mpt-opt" ] && [ -e "$build/lib/libmpt_rt.so" ] && [ -e "$build/lib/libmpt_compiler.so" ] ||
  die "expected a build: run scripts/build.sh release"
suite=forward results=conformance
case "${1:-}" in
--gradient) suite=gradient results=gradients && shift ;;
--storage) suite=storage results=storage && shift ;;
--aarch64) shift && set -- --backend emulated "$@" ;;
esac
PYTHONPATH="$MPT_ROOT/python:$MPT_ROOT/test/emulated" exec nice -n 10 "$MPT_ROOT/.venv/bin/python" -W ignore \
  "$MPT_ROOT/test/conformance/$suite.py" --build "$build" --cache "$MPT_ROOT/build/conformance" \
  --results "$MPT_ROOT/docs/results/$results.tsv" "$@"
