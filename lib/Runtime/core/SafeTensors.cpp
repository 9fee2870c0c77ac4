// The safetensors reader trusts nothing that the header says; the writer is atomic.
#include "core/SafeTensors.h"

#include "core/Error.h"
#include "core/Json.h"
#include "core/Types.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
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
  fd = ::open(file, O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return fail(errno == ENOENT ? MPT_NOT_FOUND : MPT_IO_ERROR, "cannot open '%s': %s", file, strerror(errno));
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
  static int counter = 0;
  std::string target = path, folder = ".";
  if (size_t slash = target.rfind('/'); slash != std::string::npos)
    folder = slash ? target.substr(0, slash) : "/";
  std::string temporary = target + ".tmp-" + std::to_string(getpid()) + "-" +
                          std::to_string(__atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED));
  int fd = open(temporary.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
  if (fd < 0)
    return fail(MPT_IO_ERROR, "cannot write '%s': %s", path, strerror(errno));
  std::string header = headerOf(items, metadata);
  uint8_t prefix[8];
  for (int i = 0; i < 8; ++i)
    prefix[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  bool ok = writeFully(fd, prefix, 8) && writeFully(fd, header.data(), static_cast<int64_t>(header.size()));
  for (const SafeTensorsItem &item : items)
    ok = ok && writeFully(fd, item.data, item.bytes);
  ok = ok && fsync(fd) == 0;
  int error = errno;
  if (close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (ok && rename(temporary.c_str(), path) != 0) {
    ok = false;
    error = errno;
  }
  if (!ok) {
    unlink(temporary.c_str());
    return fail(MPT_IO_ERROR, "cannot write '%s': %s", path, strerror(error));
  }
  // Some file systems cannot sync a folder; the rename is in order all the same.
  int directory = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return MPT_OK;
}

} // namespace mpt::rt
