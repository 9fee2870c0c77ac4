// SPDX-License-Identifier: Apache-2.0
// Sums and maxima over the replicas of a global step, bitwise identical for any number of processes.
#ifndef MPT_RUNTIME_WORLD_REDUCTION_H
#define MPT_RUNTIME_WORLD_REDUCTION_H

#include "world/Tree.h"

#include "mpt-c/runtime.h"

#include <memory>

namespace mpt::rt {

class World;
struct Bucket;
struct ReductionPlan;

/// V replicas are the leaves of the canonical tree (Tree.h). Process r of N owns leaves [r V/N, (r+1) V/N), folds
/// them as they come into the largest nodes that it has whole, and exchanges these. Each rank adds one chunk of every
/// bucket in the tree's order (reduce-scatter) and gives the result to the others (all-gather). Where V and N are
/// powers of two a rank has one node: 2 (N-1)/N of a bucket's bytes are sent, the least there is. Else it may have
/// several, at most 2 log2 V, and reduce-scatter sends each of them.
///
/// Contributions may be of 16 bits: they are exact in FP32, in which all is added. Where each process has one replica
/// they travel as they are, so that reduce-scatter sends half. Results are FP32.
///
/// One a trainer, used by one thread. Communication runs on the world's thread, in the order in which buckets were
/// completed, which has to be the same on all ranks.
class Reduction {
public:
  enum class Kind { Sum, Max };     // Max: NaN where any is
  enum class Result { All, Shard }; // Shard: each rank gets shard() of the result alone, without the all-gather

  /// `world` may be null: one process. MPT_INVALID_ARGUMENT from the first begin() where its size does not divide
  /// `replicas`.
  Reduction(std::shared_ptr<World> world, int64_t replicas);
  ~Reduction();

  /// Replicas of this process.
  int64_t localReplicas() const;

  /// A bucket of `elements` values (0 is fine), contributed as `dtype`: FP32, FP16 or BF16. Its number, from 0 on. The
  /// same calls in the same order on all ranks.
  int64_t declare(int64_t elements, Kind kind, Result result = Result::All, int64_t dtype = MPT_FLOAT32);
  /// The elements of a bucket that this rank sums, and gets where its result is a shard.
  Leaves shard(int64_t bucket) const;

  /// Begins a step; `step` is the same on all ranks. Unfinished reductions of an earlier step are dropped.
  mpt_status begin(uint64_t step);
  /// The values of local replica 0, 1, ... localReplicas() - 1, in this order for each bucket. They are copied or
  /// added. The last one starts the communication.
  mpt_status contribute(int64_t bucket, int64_t replica, const void *values);
  /// Waits for the result of all replicas and copies it to `values`: all elements, or shard()'s.
  mpt_status receive(int64_t bucket, float *values);

private:
  std::shared_ptr<World> world;
  std::shared_ptr<const ReductionPlan> plan;
  std::vector<std::shared_ptr<Bucket>> buckets; // shared with the world's thread
  uint64_t step = 0;
};

} // namespace mpt::rt

#endif
