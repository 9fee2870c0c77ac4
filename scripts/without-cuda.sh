#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs a command as on a machine without CUDA: without-cuda.sh COMMAND [ARGUMENT...]
#
# In a mount namespace of its own, toolkits (headers, ptxas, nvcc), the driver, the libraries that scripts/setup.sh brings for tests and
# folders named by CUDA_PATH and the like are not there.
# For instance, the build and its tests from nothing:
#   scripts/without-cuda.sh bash -c 'cmake --preset release -B build/without-cuda && ninja -C build/without-cuda &&
#     ctest --test-dir build/without-cuda/test && lit build/without-cuda/test'
set -euo pipefail
[ $# -ge 1 ] || { echo "expected a command: without-cuda.sh COMMAND [ARGUMENT...]" >&2; exit 2; }
if [ "${MPT_CUDA_HIDDEN:-}" != 1 ]; then
  exec env MPT_CUDA_HIDDEN=1 unshare --map-root-user --mount "$0" "$@"
fi
hidden=()
nothing="$(mktemp)" # no program, and no library
trap 'rm -f "$nothing"' EXIT
chmod 000 "$nothing"
for folder in /usr/local/cuda* /opt/cuda* "${MPT_DEPS_DIR:-$HOME/.cache/mpt}/nvidia" ${CUDA_PATH:-} ${CUDA_HOME:-} ${CUDA_ROOT:-}; do
  [ -d "$folder" ] && [ ! -L "$folder" ] && mount -t tmpfs none "$folder" && hidden+=("$folder")
done
IFS=: read -ra path <<< "$PATH"
for program in ptxas nvcc nvidia-smi compute-sanitizer ncu; do
  for folder in "${path[@]}"; do
    [ -x "$folder/$program" ] && [ ! -d "$folder/$program" ] && mount --bind "$nothing" "$folder/$program" && hidden+=("$folder/$program")
  done
done
while read -r library; do
  [ -e "$library" ] && mount --bind "$nothing" "$(readlink -f "$library")" && hidden+=("$library")
done < <(ldconfig -p | sed -n 's/.*=> \(.*lib\(cuda\|cublasLt\|cudnn\|nvidia-ml\)\.so.*\)/\1/p')
unset CUDA_PATH CUDA_HOME CUDA_ROOT MPT_CUDA_HEADERS
echo "without-cuda.sh: hidden: ${hidden[*]:-nothing}" >&2
status=0
"$@" || status=$?
exit "$status"
