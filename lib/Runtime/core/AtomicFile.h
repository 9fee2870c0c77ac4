// SPDX-License-Identifier: Apache-2.0
// Files that are there whole or not at all.
#ifndef MPT_RUNTIME_CORE_ATOMICFILE_H
#define MPT_RUNTIME_CORE_ATOMICFILE_H

#include "mpt-c/runtime.h"

#include <string>
#include <vector>

namespace mpt::rt {

/// Bytes of a file, which begin where the part before ends.
struct FilePart {
  const void *data;
  int64_t bytes;
};

/// The file that a path names: that to which it leads where it is a symbolic link, whether that file exists or not.
std::string behindLinks(const char *path);

/// Writes a file under a temporary name in the same folder, brings it to disk and renames it: after a crash at any
/// moment `path` holds the old or the new contents. On failure the old file stays and nothing else is left behind; what
/// a killed process left is removed by the next write to `path`. A symbolic link stays one: what it leads to is
/// written.
mpt_status writeAtomically(const char *path, const std::vector<FilePart> &parts);

} // namespace mpt::rt

#endif
