// SPDX-License-Identifier: Apache-2.0
// A saved state in several files: an index with the state that every rank has, and beside it each rank's shards.
#ifndef MPT_RUNTIME_CORE_SHARDEDSTATE_H
#define MPT_RUNTIME_CORE_SHARDEDSTATE_H

#include "core/SafeTensors.h"

#include "mpt-c/abi.h"

#include <memory>

struct mpt_trainer;

namespace mpt::rt {

/// The files of a state `path`. The index lies at `path`; it names a generation, 16 hexadecimal digits drawn for each
/// save, the number of shards, and their checksums. Shard r of that generation is `path`.<generation>.<r>. All files
/// are safetensors. The index is written once all shards are on disk, so that it always names whole ones: after a crash
/// at any moment of a save it is the old index with the old shards, or the new one with the new.
///
/// Collective: all ranks write. MPT_IO_ERROR on all where one cannot; the old state stays.
mpt_status saveShards(const mpt_trainer &trainer, const char *path);

/// Reads the shards that an index names, as whole tensors, for any number of ranks and replicas.
class ShardedReader {
public:
  /// Whether an open file is an index.
  static bool isIndex(const SafeTensorsReader &file) { return !file.metadata("generation").empty(); }
  /// MPT_BAD_FILE where index and shards do not belong together; MPT_NOT_FOUND where a shard is missing.
  mpt_status open(const SafeTensorsReader &index, const char *path, const mpt_module_desc &module);
  bool has(const std::string &name) const { return !shards.empty() && shards[0]->find(name); }
  /// Reads tensor `t`, which the shards have and the index has not. Tensors come in the module's order.
  mpt_status read(const mpt_tensor_desc &t, uint8_t *out);
  /// After all tensors: MPT_BAD_FILE where the bytes of a shard are not the saved ones.
  mpt_status finish() const;

private:
  std::string path;
  std::vector<std::unique_ptr<SafeTensorsReader>> shards;
  std::vector<std::string> expected;
  std::vector<uint64_t> sums;
};

} // namespace mpt::rt

#endif
