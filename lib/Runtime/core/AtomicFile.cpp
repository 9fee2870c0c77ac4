// SPDX-License-Identifier: Apache-2.0
// Temporary files that are locked while they are written, so that nobody takes them for leftovers of a killed process.
#include "core/AtomicFile.h"

#include "core/Error.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace mpt::rt {
namespace {

bool writeFully(int fd, const void *in, int64_t bytes) {
  auto *from = static_cast<const char *>(in);
  while (bytes > 0) {
    ssize_t put = write(fd, from, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 30)));
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return false;
    from += put, bytes -= put;
  }
  return true;
}

constexpr const char *temporaryMark = ".tmp-";

/// Whether a name goes on behind the mark as openTemporary makes it: a process's number and a counter, 100-7.
bool isTemporary(const char *rest) {
  const size_t process = strspn(rest, "0123456789");
  if (!process || rest[process] != '-')
    return false;
  const char *counter = rest + process + 1;
  const size_t count = strspn(counter, "0123456789");
  return count && !counter[count];
}

/// Removes temporary files of processes that were killed while they wrote `folder`/`name`. A living writer holds a lock
/// on its temporary file; the system drops it with the process.
void removeStale(const std::string &folder, const std::string &name) {
  DIR *dir = opendir(folder.c_str());
  if (!dir)
    return;
  std::string prefix = name + temporaryMark;
  while (dirent *entry = readdir(dir)) {
    if (strncmp(entry->d_name, prefix.c_str(), prefix.size()) != 0 || !isTemporary(entry->d_name + prefix.size()))
      continue;
    int fd = openat(dirfd(dir), entry->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
      continue;
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && flock(fd, LOCK_EX | LOCK_NB) == 0)
      unlinkat(dirfd(dir), entry->d_name, 0);
    close(fd);
  }
  closedir(dir);
}

/// A new file beside `target`, locked for as long as it is open; -1 with errno when there can be none.
int openTemporary(const std::string &target, std::string &temporary) {
  static int counter = 0;
  for (;;) {
    temporary = target + temporaryMark + std::to_string(getpid()) + "-" +
                std::to_string(__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
    int fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0 && errno == EEXIST)
      continue; // another machine's process of this number, on a shared disk
    if (fd < 0)
      return fd;
    // Between its making and its lock the file looks like a stale one; where it was taken for that, make another.
    struct stat info;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      close(fd);
      continue;
    }
    if (fstat(fd, &info) == 0 && info.st_nlink > 0)
      return fd;
    close(fd);
  }
}

} // namespace

std::string behindLinks(const char *path) {
  std::string target = path;
  struct stat info;
  for (int links = 0; links < 40 && lstat(target.c_str(), &info) == 0 && S_ISLNK(info.st_mode); ++links) {
    char to[4096];
    ssize_t length = readlink(target.c_str(), to, sizeof to);
    if (length <= 0 || length == static_cast<ssize_t>(sizeof to))
      break;
    size_t slash = to[0] == '/' ? std::string::npos : target.rfind('/');
    target =
        (slash == std::string::npos ? "" : target.substr(0, slash + 1)) + std::string(to, static_cast<size_t>(length));
  }
  return target;
}

AtomicFile::~AtomicFile() {
  if (fd < 0)
    return;
  unlink(temporary.c_str());
  close(fd);
}

mpt_status AtomicFile::failed(int error) const {
  return fail(MPT_IO_ERROR, "cannot write '%s': %s", path.c_str(), strerror(error));
}

mpt_status AtomicFile::open(const char *given) {
  path = given;
  target = behindLinks(given);
  folder = ".";
  std::string name = target;
  if (size_t slash = target.rfind('/'); slash != std::string::npos) {
    folder = slash ? target.substr(0, slash) : "/";
    name = target.substr(slash + 1);
  }
  // Renaming would replace a device or a pipe by a file.
  struct stat existing;
  if (stat(given, &existing) == 0 && !S_ISREG(existing.st_mode))
    return fail(MPT_IO_ERROR, "cannot write '%s': expected a regular file or none", given);
  removeStale(folder, name);
  fd = openTemporary(target, temporary);
  return fd < 0 ? failed(errno) : MPT_OK;
}

mpt_status AtomicFile::write(const void *data, int64_t bytes) {
  return writeFully(fd, data, bytes) ? MPT_OK : failed(errno);
}

mpt_status AtomicFile::sync() { return fsync(fd) == 0 ? MPT_OK : failed(errno); }

mpt_status AtomicFile::commit() {
  // Renamed while it is open, and so locked: nobody takes it for stale.
  if (fsync(fd) != 0 || rename(temporary.c_str(), target.c_str()) != 0)
    return failed(errno);
  close(fd);
  fd = -1;
  // Some file systems cannot sync a folder; the rename is in order all the same.
  int directory = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return MPT_OK;
}

mpt_status writeAtomically(const char *path, const std::vector<FilePart> &parts) {
  AtomicFile file;
  mpt_status status = file.open(path);
  for (const FilePart &part : parts)
    status = status ? status : file.write(part.data, part.bytes);
  return status ? status : file.commit();
}

} // namespace mpt::rt
