// SPDX-License-Identifier: Apache-2.0
// The code of one library file, apart from the process's other loads of the same path.
#ifndef MPT_RUNTIME_CORE_LOADEDLIBRARY_H
#define MPT_RUNTIME_CORE_LOADEDLIBRARY_H

#include "mpt-c/runtime.h"

#include <string>

namespace mpt::rt {

/// A library, loaded from a copy of its file in memory. The system's loader takes two files for one where their paths
/// or inodes are equal, and gives out the older one's code; a file overwritten in place it would even run half new.
class LoadedLibrary {
public:
  LoadedLibrary() = default;
  LoadedLibrary(const LoadedLibrary &) = delete;
  ~LoadedLibrary();
  /// MPT_IO_ERROR for a file that cannot be read or changes meanwhile, MPT_BAD_FILE for one that is no library.
  mpt_status open(const std::string &path);
  /// Null where there is none.
  void *symbol(const char *name) const;

private:
  void *handle = nullptr;
  int copy = -1; // open for as long as the loader knows it by its number
};

} // namespace mpt::rt

#endif
