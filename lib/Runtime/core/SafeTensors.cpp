// SPDX-License-Identifier: Apache-2.0
// The safetensors reader trusts nothing that the header says; the writer is atomic.
#include "core/SafeTensors.h"

#include "core/Error.h"
#include "core/Json.h"
#include "core/Types.h"

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

constexpr int64_t maxHeader = 100 << 20; // as the reference implementation has it

bool readFully(int fd, void *out, int64_t bytes, int64_t offset) {
  auto *to = static_cast<char *>(out);
  while (bytes > 0) {
    ssize_t got = pread(fd, to, static_cast<size_t>(std::min<int64_t>(bytes, 1 << 30)), offset);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      errno = got ? errno : EIO;
      return false;
    }
    to += got, offset += got, bytes -= got;
  }
  return true;
}

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

/// The bytes of a shape, or -1 when they overflow or an extent is negative.
int64_t bytesOf(const std::vector<int64_t> &shape, int64_t size) {
  int64_t bytes = size;
  for (int64_t extent : shape)
    if (extent < 0 || __builtin_mul_overflow(bytes, extent, &bytes))
      return -1;
  return bytes;
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

/// Removes what processes that were killed while they wrote `folder`/`name` have left. A living writer holds a lock on
/// its temporary file; the system drops it with the process.
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

const TypeInfo *typeNamed(const std::string &name) {
  for (const TypeInfo &type : typeTable)
    if (name == type.safetensors)
      return &type;
  return nullptr;
}

} // namespace

SafeTensorsReader::~SafeTensorsReader() {
  if (fd >= 0)
    close(fd);
}

mpt_status SafeTensorsReader::open(const char *file) {
  path = file;
  fd = ::open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe is refused below instead of waited for
  if (fd < 0)
    return fail(errno == ENOENT ? MPT_NOT_FOUND : MPT_IO_ERROR, "cannot open '%s': %s", file, strerror(errno));
  return start();
}

mpt_status SafeTensorsReader::open(int descriptor, const char *file) {
  path = file;
  fd = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  if (fd < 0)
    return fail(MPT_IO_ERROR, "cannot open '%s': %s", file, strerror(errno));
  return start();
}

mpt_status SafeTensorsReader::start() {
  const char *file = path.c_str();
  struct stat info;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
    return fail(MPT_IO_ERROR, "cannot read '%s': expected a regular file", file);
  uint8_t prefix[8];
  if (info.st_size < 8)
    return fail(MPT_BAD_FILE, "'%s': expected a safetensors file, got %lld bytes", file,
                static_cast<long long>(info.st_size));
  if (!readFully(fd, prefix, 8, 0))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", file, strerror(errno));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | prefix[i];
  if (length > static_cast<uint64_t>(maxHeader) || static_cast<int64_t>(length) > info.st_size - 8)
    return fail(MPT_BAD_FILE, "'%s': expected a header within the file's %lld bytes, got %llu", file,
                static_cast<long long>(info.st_size), static_cast<unsigned long long>(length));
  std::string header(length, '\0');
  if (!readFully(fd, header.data(), static_cast<int64_t>(length), 8))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", file, strerror(errno));
  return parse(header, static_cast<int64_t>(length) + 8, info.st_size);
}

mpt_status SafeTensorsReader::parse(const std::string &header, int64_t dataBegin, int64_t fileBytes) {
  const char *file = path.c_str();
  Json json;
  std::string error;
  if (!parseJson(header, json, error))
    return fail(MPT_BAD_FILE, "'%s': bad header: %s", file, error.c_str());
  if (json.kind != Json::Object)
    return fail(MPT_BAD_FILE, "'%s': expected a JSON object as header", file);
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (const auto &[name, member] : json.object) {
    if (name == "__metadata__") {
      for (const auto &[key, value] : member.object)
        meta.emplace(key, value.string);
      continue;
    }
    const Json *dtype = member.find("dtype"), *shape = member.find("shape"), *offsets = member.find("data_offsets");
    if (!dtype || dtype->kind != Json::String || !shape || shape->kind != Json::Array || !offsets ||
        offsets->array.size() != 2 || !offsets->array[0].integral || !offsets->array[1].integral)
      return fail(MPT_BAD_FILE, "'%s': tensor '%.200s': expected dtype, shape and two data_offsets", file,
                  name.c_str());
    const TypeInfo *type = typeNamed(dtype->string);
    if (!type)
      return fail(MPT_BAD_FILE, "'%s': tensor '%.200s': unknown dtype '%.20s'", file, name.c_str(),
                  dtype->string.c_str());
    Entry entry{type->dtype, {}, 0, 0};
    for (const Json &extent : shape->array) {
      if (!extent.integral)
        return fail(MPT_BAD_FILE, "'%s': tensor '%.200s': expected integers as shape", file, name.c_str());
      entry.shape.push_back(extent.integer);
    }
    int64_t begin = offsets->array[0].integer, end = offsets->array[1].integer;
    entry.bytes = bytesOf(entry.shape, type->size);
    if (begin < 0 || end < begin || end > fileBytes - dataBegin)
      return fail(MPT_BAD_FILE,
                  "'%s': tensor '%.200s': expected offsets within the file's %lld bytes of data, got %lld to %lld (is "
                  "the file truncated?)",
                  file, name.c_str(), static_cast<long long>(fileBytes - dataBegin), static_cast<long long>(begin),
                  static_cast<long long>(end));
    if (entry.bytes != end - begin)
      return fail(MPT_BAD_FILE, "'%s': tensor '%.200s': expected %lld bytes for its shape, got %lld", file,
                  name.c_str(), static_cast<long long>(entry.bytes), static_cast<long long>(end - begin));
    entry.begin = dataBegin + begin;
    if (entry.bytes)
      ranges.emplace_back(begin, end);
    if (!entries.emplace(name, std::move(entry)).second)
      return fail(MPT_BAD_FILE, "'%s': tensor '%.200s' is there twice", file, name.c_str());
  }
  std::sort(ranges.begin(), ranges.end());
  for (size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      return fail(MPT_BAD_FILE, "'%s': two tensors share the bytes at offset %lld", file,
                  static_cast<long long>(ranges[i].first));
  return MPT_OK;
}

const SafeTensorsReader::Entry *SafeTensorsReader::find(const std::string &name) const {
  auto it = entries.find(name);
  return it == entries.end() ? nullptr : &it->second;
}

mpt_status SafeTensorsReader::read(const Entry &entry, void *out) const {
  if (!readFully(fd, out, entry.bytes, entry.begin))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", path.c_str(), strerror(errno));
  return MPT_OK;
}

std::string SafeTensorsReader::metadata(const std::string &key) const {
  auto it = meta.find(key);
  return it == meta.end() ? std::string() : it->second;
}

uint64_t checksumOf(const void *data, int64_t bytes, uint64_t seed) {
  constexpr uint64_t prime = 0x100000001b3;
  uint64_t lanes[4] = {seed, seed + 1, seed + 2, seed + 3}, word = 0;
  auto *from = static_cast<const uint8_t *>(data);
  int64_t i = 0;
  for (; i + 32 <= bytes; i += 32)
    for (int lane = 0; lane < 4; ++lane) {
      memcpy(&word, from + i + 8 * lane, 8);
      lanes[lane] = (lanes[lane] ^ word) * prime;
    }
  for (; i < bytes; ++i)
    lanes[i % 4] = (lanes[i % 4] ^ from[i]) * prime;
  uint64_t result = static_cast<uint64_t>(bytes);
  for (uint64_t lane : lanes)
    result = (result ^ (lane ^ lane >> 32)) * prime;
  return result;
}

std::string textOf(uint64_t checksum) {
  char text[17];
  snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

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

static std::string headerOf(const std::vector<SafeTensorsItem> &items,
                            const std::vector<std::pair<std::string, std::string>> &metadata) {
  std::string json = "{\"__metadata__\":{";
  for (const auto &[key, value] : metadata) {
    if (json.back() != '{')
      json += ',';
    appendJsonString(json, key);
    json += ':';
    appendJsonString(json, value);
  }
  json += '}';
  int64_t offset = 0;
  for (const SafeTensorsItem &item : items) {
    json += ',';
    appendJsonString(json, item.name);
    json += ":{\"dtype\":\"" + std::string(typeInfo(item.dtype)->safetensors) + "\",\"shape\":[";
    for (size_t i = 0; i < item.shape.size(); ++i)
      json += (i ? "," : "") + std::to_string(item.shape[i]);
    json += "],\"data_offsets\":[" + std::to_string(offset) + ',' + std::to_string(offset + item.bytes) + "]}";
    offset += item.bytes;
  }
  json += '}';
  json.append((64 - (json.size() + 8) % 64) % 64, ' '); // the data starts at a multiple of 64
  return json;
}

mpt_status writeSafeTensors(const char *path, const std::vector<SafeTensorsItem> &items,
                            const std::vector<std::pair<std::string, std::string>> &metadata) {
  std::string target = behindLinks(path), folder = ".", name = target, temporary;
  if (size_t slash = target.rfind('/'); slash != std::string::npos) {
    folder = slash ? target.substr(0, slash) : "/";
    name = target.substr(slash + 1);
  }
  // Renaming would replace a device or a pipe by a file.
  struct stat existing;
  if (stat(path, &existing) == 0 && !S_ISREG(existing.st_mode))
    return fail(MPT_IO_ERROR, "cannot write '%s': expected a regular file or none", path);
  removeStale(folder, name);
  int fd = openTemporary(target, temporary);
  if (fd < 0)
    return fail(MPT_IO_ERROR, "cannot write '%s': %s", path, strerror(errno));
  std::string header = headerOf(items, metadata);
  uint8_t prefix[8];
  for (int i = 0; i < 8; ++i)
    prefix[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  bool ok = writeFully(fd, prefix, 8) && writeFully(fd, header.data(), static_cast<int64_t>(header.size()));
  for (const SafeTensorsItem &item : items)
    ok = ok && writeFully(fd, item.data, item.bytes);
  // Renamed while it is open, and so locked: nobody takes it for stale.
  ok = ok && fsync(fd) == 0 && rename(temporary.c_str(), target.c_str()) == 0;
  int error = errno;
  if (!ok)
    unlink(temporary.c_str());
  close(fd);
  if (!ok)
    return fail(MPT_IO_ERROR, "cannot write '%s': %s", path, strerror(error));
  // Some file systems cannot sync a folder; the rename is in order all the same.
  int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return MPT_OK;
}

} // namespace mpt::rt
