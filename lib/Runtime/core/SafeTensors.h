// SPDX-License-Identifier: Apache-2.0
// Reading and writing the safetensors format: eight bytes of little-endian header length, a JSON header, the data.
// Format: https://huggingface.co/docs/safetensors (version 0.4).
#ifndef MPT_RUNTIME_CORE_SAFETENSORS_H
#define MPT_RUNTIME_CORE_SAFETENSORS_H

#include "core/InputFile.h"

#include "mpt-c/runtime.h"

#include <map>
#include <string>
#include <vector>

namespace mpt::rt {

/// A checked file: every tensor's bytes lie inside the file, fit its shape and type, and belong to it alone.
class SafeTensorsReader {
public:
  struct Entry {
    int64_t dtype;
    std::vector<int64_t> shape;
    int64_t begin, bytes; // from the start of the file
  };

  SafeTensorsReader() = default;
  SafeTensorsReader(const SafeTensorsReader &) = delete;

  mpt_status open(const char *path);
  /// Reads the open file `descriptor`, which stays the caller's; `path` is for errors.
  mpt_status open(int descriptor, const char *path);
  /// Null when the file has no such tensor.
  const Entry *find(const std::string &name) const;
  /// Of all tensors, in the order of their bytes.
  mpt_status checksum(uint64_t &sum) const;
  /// Reads a tensor's bytes.
  mpt_status read(const Entry &entry, void *out) const;
  /// "" when the file has no such metadata.
  std::string metadata(const std::string &key) const;

private:
  mpt_status start();
  mpt_status parse(const std::string &header, int64_t dataBegin, int64_t fileBytes);

  InputFile input;
  std::map<std::string, Entry> entries;
  std::map<std::string, std::string> meta;
};

struct SafeTensorsItem {
  const char *name;
  int64_t dtype;
  std::vector<int64_t> shape;
  const void *data;
  int64_t bytes;
};

/// Continues checksum `seed` with the bytes that follow: FNV-1a's step on 64-bit words, in four interleaved lanes.
/// Finds every change within one word.
uint64_t checksumOf(const void *data, int64_t bytes, uint64_t seed);
/// As files have it: 16 hexadecimal digits.
std::string textOf(uint64_t checksum);

/// Atomically (writeAtomically).
mpt_status writeSafeTensors(const char *path, const std::vector<SafeTensorsItem> &items,
                            const std::vector<std::pair<std::string, std::string>> &metadata);

} // namespace mpt::rt

#endif
