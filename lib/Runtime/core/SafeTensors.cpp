// SPDX-License-Identifier: Apache-2.0
// The safetensors reader trusts nothing that the header says.
#include "core/SafeTensors.h"

#include "core/AtomicFile.h"
#include "core/Error.h"
#include "core/Json.h"
#include "core/Types.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace mpt::rt {
namespace {

constexpr int64_t maxHeader = 100 << 20; // as the reference implementation has it

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

mpt_status SafeTensorsReader::open(const char *path) {
  mpt_status status = input.open(path);
  return status ? status : start();
}

mpt_status SafeTensorsReader::open(int descriptor, const char *path) {
  mpt_status status = input.open(descriptor, path);
  return status ? status : start();
}

mpt_status SafeTensorsReader::start() {
  const char *file = input.path();
  uint8_t prefix[8];
  if (input.size() < 8)
    return fail(MPT_BAD_FILE, "'%s': expected a safetensors file, got %lld bytes", file,
                static_cast<long long>(input.size()));
  if (!input.read(prefix, 8, 0))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", file, strerror(errno));
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i)
    length = length << 8 | prefix[i];
  if (length > static_cast<uint64_t>(maxHeader) || static_cast<int64_t>(length) > input.size() - 8)
    return fail(MPT_BAD_FILE, "'%s': expected a header within the file's %lld bytes, got %llu", file,
                static_cast<long long>(input.size()), static_cast<unsigned long long>(length));
  std::string header(length, '\0');
  if (!input.read(header.data(), static_cast<int64_t>(length), 8))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", file, strerror(errno));
  return parse(header, static_cast<int64_t>(length) + 8, input.size());
}

mpt_status SafeTensorsReader::parse(const std::string &header, int64_t dataBegin, int64_t fileBytes) {
  const char *file = input.path();
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
  if (!input.read(out, entry.bytes, entry.begin))
    return fail(MPT_IO_ERROR, "cannot read '%s': %s", input.path(), strerror(errno));
  return MPT_OK;
}

mpt_status SafeTensorsReader::checksum(uint64_t &sum) const {
  std::map<int64_t, const Entry *> inOrder;
  for (const auto &[name, entry] : entries)
    if (entry.bytes)
      inOrder[entry.begin] = &entry;
  sum = 0;
  std::vector<uint8_t> bytes;
  for (auto [begin, entry] : inOrder) {
    bytes.resize(static_cast<size_t>(entry->bytes));
    if (mpt_status status = read(*entry, bytes.data()))
      return status;
    sum = checksumOf(bytes.data(), entry->bytes, sum);
  }
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
  std::string header = headerOf(items, metadata);
  uint8_t prefix[8];
  for (int i = 0; i < 8; ++i)
    prefix[i] = static_cast<uint8_t>(header.size() >> (8 * i));
  std::vector<FilePart> parts{{prefix, 8}, {header.data(), static_cast<int64_t>(header.size())}};
  for (const SafeTensorsItem &item : items)
    parts.push_back({item.data, item.bytes});
  return writeAtomically(path, parts);
}

} // namespace mpt::rt
