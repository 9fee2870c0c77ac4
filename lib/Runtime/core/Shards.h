// SPDX-License-Identifier: Apache-2.0
// States that the replicas of a step divide among them: this process's part of each, and how whole tensors are cut.
#ifndef MPT_RUNTIME_CORE_SHARDS_H
#define MPT_RUNTIME_CORE_SHARDS_H

#include "core/Error.h"

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mpt::rt {

struct Json;
class World;

/// The layout of a trainer's state. The block begins with tensors that every process has whole; behind it lie the
/// shards of the first local replica, of the second, and so on. Replica k of V has elements [k c, (k + 1) c) of a
/// divided tensor, row-major; zeros follow the last one. Without divided states the block is the module's.
class Shards {
public:
  /// MPT_BAD_FILE where the manifest contradicts the tables; MPT_INVALID_ARGUMENT where the number of
  /// processes does not divide the replicas.
  mpt_status read(const mpt_module_desc &module, const Json &manifest, const World *world);

  bool any() const { return bytes > 0; }
  bool divides(int64_t i) const { return any() && pieces[static_cast<size_t>(i)]; }
  /// State tensor i with its whole shape. Its offset is the first local shard's where it is divided.
  const mpt_tensor_desc &whole(int64_t i) const { return wholes[static_cast<size_t>(i)]; }
  /// Bytes of a process's block.
  int64_t blockBytes() const { return module->state_bytes + (local - 1) * bytes; }
  /// How far a block's offsets of divided tensors move on for local replica `k`.
  int64_t shift(int64_t k) const { return k * bytes; }

  /// Bytes of one replica's shard of tensor i, and of all of them.
  int64_t shardBytes(int64_t i) const { return module->state[i].bytes; }
  int64_t paddedBytes(int64_t i) const { return shardBytes(i) * replicas; }
  /// Bytes of a divided tensor from the start of this process's part.
  int64_t begin(int64_t i) const { return shardBytes(i) * first; }
  int64_t localBytes(int64_t i) const { return shardBytes(i) * local; }

  /// Puts this process's part of a whole tensor into its block; the rest of the last shard becomes zero.
  void cut(int64_t i, const uint8_t *whole, uint8_t *block) const;
  /// Copies the shard of local replica `k` out of a whole tensor; zeros follow the last element.
  void cutShard(int64_t i, int64_t k, const uint8_t *whole, uint8_t *to) const;
  /// This process's shards of tensor i one behind the other: localBytes() of them.
  void join(int64_t i, const uint8_t *block, uint8_t *out) const;
  /// Collective: the whole tensor, paddedBytes() of it, on rank `root`, or on all ranks where it is negative. `out` is
  /// not read on the others.
  mpt_status gather(World *world, int64_t i, const uint8_t *block, int root, uint8_t *out) const;
  /// The same where this process's shards lie one behind the other at `mine`, which may be their place in `out`.
  mpt_status gatherJoined(World *world, int64_t i, const uint8_t *mine, int root, uint8_t *out) const;

  int64_t replicas = 1, first = 0, local = 1; ///< of the step; number of the first one here; how many here

private:
  const mpt_module_desc *module = nullptr;
  int64_t bytes = 0; // of the shards of one replica
  std::vector<mpt_tensor_desc> wholes;
  std::vector<std::vector<int64_t>> shapes;
  std::vector<bool> pieces;
};

} // namespace mpt::rt

#endif
