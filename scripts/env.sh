# SPDX-License-Identifier: Apache-2.0
# Sourced by the other scripts: paths and compiler cache settings that they share.
MPT_ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
export MPT_ROOT
export HOME="${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}"
export MPT_DEPS_DIR="${MPT_DEPS_DIR:-$HOME/.cache/mpt}"
export PATH="$MPT_ROOT/.venv/bin:$PATH"
export PYTHONPATH="$MPT_ROOT/python${PYTHONPATH:+:$PYTHONPATH}"
export PYTHONDONTWRITEBYTECODE=1

# Cached objects serve every checkout of this repository, whatever folder it lies in.
export CCACHE_BASEDIR="$MPT_ROOT"
export CCACHE_NOHASHDIR=1
# An object without warnings is the same with -Werror and without (one that has any fails with it, and is not kept).
export CCACHE_IGNOREOPTIONS="-Werror -Wno-error=deprecated-declarations -Wno-missing-field-initializers"
export CCACHE_SLOPPINESS="pch_defines,time_macros,include_file_mtime,include_file_ctime"
export CCACHE_PCH_EXTSUM=1 # cmake/MPTPrecompiledHeader.cmake
# The headers of a file come from the compiler's own list of them. Preprocessing each new file first, to find them, costs a third as much
# again as compiling it from the precompiled header.
export CCACHE_DEPEND=1

say() { printf '%s: %s\n' "$(basename "$0" .sh)" "$*"; }
die() {
  printf '%s: error: %s\n' "$(basename "$0" .sh)" "$*" >&2
  exit 1
}
