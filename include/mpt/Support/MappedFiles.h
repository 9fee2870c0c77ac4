// SPDX-License-Identifier: Apache-2.0
// Files that this process shows read-only in its memory.
#ifndef MPT_SUPPORT_MAPPEDFILES_H
#define MPT_SUPPORT_MAPPEDFILES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpt {

/// The address ranges of this process that showed files read-only when the object was made: their pages come back from
/// the file when they are dropped.
class MappedFiles {
public:
  MappedFiles();
  /// Drops the pages that lie in [data, data + size) and in a file from this process's memory.
  void release(const char *data, size_t size) const;

private:
  struct Range {
    uintptr_t begin = 0, end = 0;
  };
  std::vector<Range> ranges;
};

} // namespace mpt

#endif // MPT_SUPPORT_MAPPEDFILES_H
