#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs all that is missing for building mpt on Debian 12: system packages, the Python environment .venv and the ONNX C++
# library. Safe to run again; takes about a second when nothing is missing.
# With --tests also the needs of tests: PyTorch and ONNX Runtime to compare with, MPI, formatters and assemblers.
# With --libraries also optional needs of tests: a Fortran compiler; AArch64's C++ library and an emulator (118 MB to download,
# 600 MB on disk); and NVIDIA's libraries that tests ask without a GPU (870 MB to download, 1.2 GB on disk): cuDNN 9.19, cuBLASLt
# and the compiler that cuDNN opens, with their headers. --libraries=all adds cuDNN 9.28 and NCCL (820 MB, 1.2 GB).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null

tests=no
libraries=none
for word; do
  tests=yes
  case "$word" in
  --tests) ;;
  --libraries) libraries=usual ;;
  --libraries=all) libraries=all ;;
  *) die "expected --tests, --libraries, --libraries=all or nothing, got '$word'" ;;
  esac
done

ONNX_VERSION=1.23.2
ONNX_SHA256=008cb0467b2bbee41448acc7da8b6f4e704624cb0d327a2d5adafc7ce19bc5b8
ONNX_PREFIX="$MPT_DEPS_DIR/onnx-$ONNX_VERSION"
SYSTEM_PACKAGES=(
  clang-22 lld-22 llvm-22-dev libmlir-22-dev mlir-22-tools
  libprotobuf-dev protobuf-compiler libflatbuffers-dev libgomp1 libsimde-dev zlib1g-dev ccache python3 python3-venv ca-certificates
)
# Only tests need these: sanitizers, tools of the checks, both implementations of MPI, and network namespaces.
[ $tests = no ] ||
  SYSTEM_PACKAGES+=(clang-format-22 clang-tidy-22 libclang-rt-22-dev llvm-22-tools git openmpi-bin mpich iproute2)
BUILD_PACKAGES=("cmake>=3.26" ninja)
PYTHON_PACKAGES=(
  "${BUILD_PACKAGES[@]}" numpy "onnx==$ONNX_VERSION" scikit-learn ml_dtypes tqdm setuptools wheel "onednn-devel-cpu-gomp==2023.2.0"
)
# Only tests need these: runners, a measure of functions, references to compare with, exporters, and NVIDIA's assembler and disassemblers.
TEST_PACKAGES=(
  lit pytest pytest-xdist "lizard==1.24.3" "torch==2.13.0" "mmaemu==0.1.0" onnxruntime onnxscript nvidia-cuda-nvcc-cu12 nvidia-cuda-cuobjdump
  nvidia-cuda-nvdisasm
)

# Only tests need these, and they never install into .venv, where PyTorch may have versions of its own: a folder each.
NVIDIA_PACKAGES=(
  nvidia-cublas==13.10.0.20 nvidia-cuda-nvrtc==13.5.37 nvidia-cudnn-cu13==9.19.0.56
  nvidia-cuda-runtime==13.5.37 nvidia-cuda-crt==13.5.37 nvidia-cuda-cccl==13.3.5.0.6
)
MORE_NVIDIA_PACKAGES=(nvidia-cudnn-cu13==9.28.1.4 nvidia-nccl-cu13==2.32.3)

# ---- system packages ------------------------------------------------------------------------------------------------
missing_packages() {
  comm -23 <(printf '%s\n' "${SYSTEM_PACKAGES[@]}" | sort) \
    <(dpkg-query -W -f='${Package} ${db:Status-Status}\n' "${SYSTEM_PACKAGES[@]}" 2>/dev/null |
      awk '$2 == "installed" { print $1 }' | sort)
}

apt() {
  DEBIAN_FRONTEND=noninteractive "${AS_ROOT[@]}" apt-get -qq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 \
    -o Acquire::Retries=3 "$@"
}

install_system_packages() {
  command -v dpkg-query >/dev/null || die "expected Debian 12 or a derivative (no dpkg here); install by hand: ${SYSTEM_PACKAGES[*]}"
  local missing
  mapfile -t missing < <(missing_packages)
  [ ${#missing[@]} -eq 0 ] && return 0
  AS_ROOT=()
  if [ "$(id -u)" -ne 0 ]; then
    command -v sudo >/dev/null || die "run as root, or install sudo: these packages are missing: ${missing[*]}"
    AS_ROOT=(sudo DEBIAN_FRONTEND=noninteractive)
  fi
  say "installing ${#missing[@]} system packages (about a minute): ${missing[*]}"
  # Lists may be absent (a fresh container) or too old to fetch from: refresh them then, and try once more.
  if ! apt install --simulate --no-install-recommends "${missing[@]}" >/dev/null 2>&1 ||
    ! apt install --no-install-recommends -y "${missing[@]}" >/dev/null 2>&1; then
    say "refreshing the package lists"
    apt update || die "apt-get update failed; is the network there?"
    local log
    log="$(apt install --no-install-recommends -y "${missing[@]}" 2>&1)" || {
      printf '%s\n' "$log" | tail -20 >&2
      die "apt-get install failed; LLVM 22 is in Debian 12 with its security updates: are those in the package sources?"
    }
  fi
}

# ---- Python environment ---------------------------------------------------------------------------------------------
# fingerprint PACKAGE...: stands for an installation; .venv/.mpt-setup and .venv/.mpt-tests keep the ones that were made.
fingerprint() {
  printf '%s\n' "$MPT_ROOT" "$@"
  cat "$MPT_ROOT/python/pyproject.toml" 2>/dev/null || true
}

usable_python() {
  local candidate
  for candidate in "${PYTHON:-}" python3 /usr/bin/python3; do
    [ -n "$candidate" ] && "$candidate" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 10))' \
      2>/dev/null && echo "$candidate" && return 0
  done
  return 1
}

is_borrowed() { [ -L "$MPT_ROOT/.venv" ] && [ -x "$MPT_ROOT/.venv/bin/python" ]; }

pip_run() {
  "$MPT_ROOT/.venv/bin/python" -m pip install -q --disable-pip-version-check "$@" || die "pip could not install: $*"
}

# pip_install MARK PACKAGE...: installs packages unless the mark says that they are.
pip_install() {
  local mark="$MPT_ROOT/.venv/$1"
  shift
  [ "$(fingerprint "$@")" != "$(cat "$mark" 2>/dev/null)" ] || return 0
  say "installing Python packages: $*"
  pip_run "$@"
  [ ! -e "$MPT_ROOT/python/pyproject.toml" ] || pip_run --no-build-isolation --no-deps -e "$MPT_ROOT/python"
  fingerprint "$@" >"$mark"
}

# make_environment: .venv with the packages that the ONNX C++ library's build needs. A link to another checkout's .venv is that checkout's business.
make_environment() {
  local venv="$MPT_ROOT/.venv" python
  is_borrowed && return 0
  if ! { [ -x "$venv/bin/python" ] && head -1 "$venv/.mpt-setup" 2>/dev/null | grep -qxF "$MPT_ROOT"; }; then
    python="$(usable_python)" || die "no Python 3.10 or newer with the venv module; set PYTHON to one"
    say "making the Python environment .venv"
    rm -rf "$venv"
    "$python" -m venv "$venv" || die "could not make $venv"
    printf '%s\n' "$MPT_ROOT" >"$venv/.mpt-setup"
  fi
  [ -x "$venv/bin/cmake" ] && [ -x "$venv/bin/ninja" ] || pip_run "${BUILD_PACKAGES[@]}"
}

install_python_packages() {
  is_borrowed && return 0
  pip_install .mpt-setup "${PYTHON_PACKAGES[@]}"
  [ $tests = no ] || pip_install .mpt-tests "${TEST_PACKAGES[@]}"
}

# ---- ONNX C++ library -----------------------------------------------------------------------------------------------
install_onnx() {
  [ -e "$ONNX_PREFIX/lib/cmake/ONNX/ONNXConfig.cmake" ] && return 0
  mkdir -p "$MPT_DEPS_DIR" || die "cannot make $MPT_DEPS_DIR; set MPT_DEPS_DIR to a folder that can be written"
  exec 8>"$MPT_DEPS_DIR/.lock"
  flock 8
  [ -e "$ONNX_PREFIX/lib/cmake/ONNX/ONNXConfig.cmake" ] && return 0
  say "building the ONNX $ONNX_VERSION C++ library (one to three minutes)"
  local work
  work="$(mktemp -d "$MPT_DEPS_DIR/.onnx-build.XXXXXX")"
  trap "rm -rf '$work'" EXIT
  "$MPT_ROOT/.venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps --no-binary onnx -d "$work" \
    "onnx==$ONNX_VERSION" || die "pip could not download the ONNX source package"
  echo "$ONNX_SHA256  $work/onnx-$ONNX_VERSION.tar.gz" | sha256sum -c --quiet ||
    die "the ONNX source package is not the one expected"
  tar -xf "$work/onnx-$ONNX_VERSION.tar.gz" -C "$work"
  # -O1, since the library takes a twelfth of an import's time at most. One constructor of its version converter is slow to optimize.
  echo 'set_source_files_properties(onnx/version_converter/convert.cc PROPERTIES COMPILE_OPTIONS -O0)' >"$work/options.cmake"
  {
    cmake -S "$work/onnx-$ONNX_VERSION" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" -DCMAKE_PROJECT_onnx_INCLUDE="$work/options.cmake" \
      -DCMAKE_CXX_COMPILER=clang++-22 -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
      -DONNX_USE_PROTOBUF_SHARED_LIBS=ON -DONNX_USE_UNITY_BUILD=ON -DBUILD_SHARED_LIBS=OFF -DONNX_BUILD_PYTHON=OFF \
      -DONNX_ML=ON -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_LIBDIR=lib &&
      cmake --build "$work/build" && cmake --install "$work/build"
  } >"$work/log" 2>&1 || {
    tail -40 "$work/log" >&2
    die "the ONNX C++ library did not build (its last lines are above)"
  }
  rm -rf "$ONNX_PREFIX"
  mv -T "$work/prefix" "$ONNX_PREFIX"
}

# ---- NVIDIA's libraries for tests ------------------------------------------------------------------------------------
install_nvidia_libraries() {
  local package folder part wanted=("${NVIDIA_PACKAGES[@]}")
  [ "$libraries" = all ] && wanted+=("${MORE_NVIDIA_PACKAGES[@]}")
  mkdir -p "$MPT_DEPS_DIR/nvidia" || die "cannot make $MPT_DEPS_DIR/nvidia; set MPT_DEPS_DIR to a folder that can be written"
  exec 9>"$MPT_DEPS_DIR/nvidia/.lock"
  flock 9
  for package in "${wanted[@]}"; do
    folder="$MPT_DEPS_DIR/nvidia/$package"
    part="$MPT_DEPS_DIR/nvidia/.part"
    [ -d "$folder" ] && continue
    say "installing $package for tests"
    rm -rf "$part"
    if ! "$MPT_ROOT/.venv/bin/python" -m pip install -q --disable-pip-version-check --no-cache-dir --no-deps --target "$part" "$package"; then
      rm -rf "$part"
      say "no $package to be had: tests that need it are skipped"
      continue
    fi
    mv -T "$part" "$folder"
  done
}

# install_optional PROGRAM TESTS PACKAGE...: tests are skipped without.
install_optional() {
  command -v "$1" >/dev/null && return 0
  local without="$2"
  shift 2
  (SYSTEM_PACKAGES=("$@") && install_system_packages) || say "no $* to be had: tests of $without are skipped"
}

install_system_packages
make_environment
# Two processors have work while packages arrive.
install_onnx &
onnx=$!
install_python_packages
wait "$onnx" || exit 1
if [ "$libraries" != none ]; then
  install_optional gfortran "the Fortran module" gfortran
  install_optional qemu-aarch64-static "libraries for AArch64" qemu-user-static g++-aarch64-linux-gnu
  install_nvidia_libraries
fi
say "everything is installed"
