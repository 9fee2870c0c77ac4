// SPDX-License-Identifier: Apache-2.0
#include "core/InputFile.h"

#include "core/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mpt::rt {

InputFile::~InputFile() {
  if (fd >= 0)
    close(fd);
}

mpt_status InputFile::open(const char *path) {
  fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused below instead of waited for
  if (fd < 0)
    return fail(errno == ENOENT ? MPT_NOT_FOUND : MPT_IO_ERROR, "cannot open '%s': %s", path, strerror(errno));
  return start(path);
}

mpt_status InputFile::open(int descriptor, const char *path) {
  fd = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return fail(MPT_IO_ERROR, "cannot open '%s': %s", path, strerror(errno));
  return start(path);
}

mpt_status InputFile::start(const char *path) {
  name = path;
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return fail(MPT_IO_ERROR, "cannot read '%s': expected a regular file", path);
  bytes = info.st_size;
  return MPT_OK;
}

bool InputFile::read(void *out, int64_t wanted, int64_t offset) const {
  auto *to = static_cast<char *>(out);
  while (wanted > 0) {
    ssize_t got = pread(fd, to, static_cast<size_t>(std::min<int64_t>(wanted, 1 << 30)), offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      errno = got ? errno : EIO;
      return false;
    }
    to += got, offset += got, wanted -= got;
  }
  return true;
}

} // namespace mpt::rt
