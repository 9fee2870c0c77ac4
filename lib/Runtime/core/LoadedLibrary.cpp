// SPDX-License-Identifier: Apache-2.0
// Copies library files into memory of their own and loads them from there.
#include "core/LoadedLibrary.h"

#include "core/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

struct File {
  int fd = -1;
  File() = default;
  File(const File &) = delete;
  ~File() {
    if (fd >= 0)
      close(fd);
  }
};

bool isSame(const struct stat &a, const struct stat &b) {
  return a.st_size == b.st_size && a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

/// An empty file in memory. Systems that want to know whether it will be executed are told the safer of the two: the
/// loader needs no permission of the file's to map it.
int memoryFile(const char *name) {
#ifdef MFD_NOEXEC_SEAL
  int fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  if (fd >= 0 || errno != EINVAL)
    return fd;
#endif
  return memfd_create(name, MFD_CLOEXEC);
}

/// Copies a file that nobody writes meanwhile; `stable` says whether that was so.
mpt_status copyFile(const std::string &path, File &copy, bool &stable) {
  File file;
  file.fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused below instead of waited for
  struct stat before, after;
  if (file.fd < 0 || fstat(file.fd, &before) != 0)
    return fail(errno == ENOENT ? MPT_NOT_FOUND : MPT_IO_ERROR, "cannot open '%s': %s", path.c_str(), strerror(errno));
  if (!S_ISREG(before.st_mode))
    return fail(MPT_IO_ERROR, "cannot read '%s': expected a regular file", path.c_str());
  copy.fd = memoryFile(path.substr(path.rfind('/') + 1).substr(0, 200).c_str());
  if (copy.fd < 0)
    return fail(MPT_IO_ERROR, "no file in memory for a copy of '%s': %s", path.c_str(), strerror(errno));
  for (off_t done = 0; done < before.st_size;) {
    ssize_t sent = sendfile(copy.fd, file.fd, &done, static_cast<size_t>(before.st_size - done));
    if (sent < 0 && errno == EINTR)
      continue;
    if (sent < 0)
      return fail(MPT_IO_ERROR, "cannot read '%s': %s", path.c_str(), strerror(errno));
    if (sent == 0)
      break; // it has become shorter
  }
  stable = fstat(file.fd, &after) == 0 && isSame(before, after);
  return MPT_OK;
}

std::string nameOf(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

/// Gives `file` a number that the loader connects with no library: one that stays after its file is closed (where
/// closing it did not unload it) keeps its number.
bool renumber(File &file) {
  while (void *other = dlopen(nameOf(file.fd).c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD)) {
    dlclose(other);
    int next = fcntl(file.fd, F_DUPFD_CLOEXEC, file.fd + 1);
    if (next < 0)
      return false;
    close(file.fd);
    file.fd = next;
  }
  return true;
}

} // namespace

LoadedLibrary::~LoadedLibrary() {
  if (handle)
    dlclose(handle);
  if (copy >= 0)
    close(copy);
}

mpt_status LoadedLibrary::open(const std::string &path) {
  constexpr int attempts = 20;
  for (int i = 0; i < attempts; ++i) {
    File file;
    bool stable = false;
    if (mpt_status status = copyFile(path, file, stable))
      return status;
    if (!stable) {
      usleep(50000);
      continue;
    }
    if (!renumber(file))
      return fail(MPT_IO_ERROR, "cannot load '%s': %s", path.c_str(), strerror(errno));
    handle = dlopen(nameOf(file.fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      // The loader knows the copy's name alone.
      std::string text = dlerror(), name = nameOf(file.fd);
      if (size_t at = text.find(name); at != std::string::npos)
        text.replace(at, name.size(), path);
      return fail(MPT_BAD_FILE, "cannot load '%s': %s", path.c_str(), text.c_str());
    }
    copy = file.fd;
    file.fd = -1;
    return MPT_OK;
  }
  return fail(MPT_IO_ERROR, "cannot load '%s': it is being written: load it once it is complete", path.c_str());
}

void *LoadedLibrary::symbol(const char *name) const { return dlsym(handle, name); }
