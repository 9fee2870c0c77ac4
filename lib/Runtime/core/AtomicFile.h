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

/// A file that is written under a temporary name in the same folder, brought to disk and renamed: after a crash at any
/// moment its path holds the old or the new contents. Until commit() the old file stays, and nothing else is left
/// behind; leftovers of a killed process are removed by the next write to the path. A symbolic link stays one: the file
/// it leads to is replaced.
class AtomicFile {
public:
  AtomicFile() = default;
  AtomicFile(const AtomicFile &) = delete;
  ~AtomicFile();

  mpt_status open(const char *path);
  mpt_status write(const void *data, int64_t bytes);
  /// Brings the written data to disk, so that nothing but renaming is left to commit().
  mpt_status sync();
  mpt_status commit();

private:
  mpt_status failed(int error) const;

  std::string path, target, folder, temporary;
  int fd = -1;
};

/// Writes a file of these parts in that way.
mpt_status writeAtomically(const char *path, const std::vector<FilePart> &parts);

} // namespace mpt::rt

#endif
