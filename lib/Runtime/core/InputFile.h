// SPDX-License-Identifier: Apache-2.0
// A file that is read at any place.
#ifndef MPT_RUNTIME_CORE_INPUTFILE_H
#define MPT_RUNTIME_CORE_INPUTFILE_H

#include "mpt-c/runtime.h"

#include <string>

namespace mpt::rt {

/// A regular file, open for reading.
class InputFile {
public:
  InputFile() = default;
  InputFile(const InputFile &) = delete;
  ~InputFile();

  mpt_status open(const char *path);
  /// Reads the open file `descriptor`, which stays the caller's; `path` is for errors.
  mpt_status open(int descriptor, const char *path);
  /// All of so many bytes, or false with errno.
  bool read(void *out, int64_t bytes, int64_t offset) const;
  int64_t size() const { return bytes; }
  const char *path() const { return name.c_str(); }

private:
  mpt_status start(const char *path);

  std::string name;
  int fd = -1;
  int64_t bytes = 0;
};

} // namespace mpt::rt

#endif // MPT_RUNTIME_CORE_INPUTFILE_H
