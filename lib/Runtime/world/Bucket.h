// SPDX-License-Identifier: Apache-2.0
// One bucket of a reduction: its values while they are folded and exchanged.
#ifndef MPT_RUNTIME_WORLD_BUCKET_H
#define MPT_RUNTIME_WORLD_BUCKET_H

#include "world/Communicator.h"
#include "world/Reduction.h"

namespace mpt::rt {

/// Memory for floats that is not initialized and does not shrink.
class Floats {
  std::unique_ptr<float[]> memory;
  int64_t count = 0;

public:
  float *get(int64_t want) {
    if (want > count || !memory) {
      memory.reset(); // the old contents are not needed
      memory.reset(new float[static_cast<size_t>(want)]);
      count = want;
    }
    return memory.get();
  }
};

/// Who owns which nodes of the tree, and how a process folds its own.
struct ReductionPlan {
  struct Leaf {
    int slot;   // where its values go, or, where it has merges, one behind the sum that they are added to
    int merges; // additions that it completes
  };
  int rank, ranks;
  int64_t replicas;
  std::vector<Leaf> leaves;                // of this process
  std::vector<std::vector<Leaves>> owners; // each rank's nodes, in order
  int slots;                               // values of a bucket that folding keeps at a time
  ReductionPlan(int rank, int ranks, int64_t replicas);
};

/// Below this, one message to each rank costs less than two rounds of smaller ones: every rank adds everything itself.
constexpr int64_t smallElements = 64;

struct Bucket {
  uint32_t number;
  int64_t elements;
  Reduction::Kind kind;
  Reduction::Result result;
  int64_t dtype;
  Floats memory, received, widened;
  std::vector<uint8_t> narrow, narrowReceived; // one replica's contribution in its own type, and the others'
  int64_t contributed = 0;                     // local replicas in this step
  uint64_t ticket = 0;                         // of the communication; 0 where none is under way

  float *slot(const ReductionPlan &plan, int64_t i) { return memory.get(plan.slots * elements) + i * elements; }
  /// Whether ranks first exchange contributions of 16 bits, not sums.
  bool travelsNarrow(const ReductionPlan &plan) const { return dtype != MPT_FLOAT32 && plan.replicas == plan.ranks; }
  void combine(float *out, const float *a, const float *b, int64_t count) const;
};

/// Elements of a bucket that rank `owner` of `ranks` adds.
inline Leaves chunkOf(int64_t elements, int owner, int ranks) {
  return {elements * owner / ranks, elements * (owner + 1) / ranks};
}

/// Exchanges the nodes of a bucket, which lie in `slot` 0, 1, ..., and leaves the result in the first: all of it, or
/// this rank's chunk in its place.
Failure reduceAcross(Communicator &communicator, Tag tag, const ReductionPlan &plan, Bucket &bucket);

} // namespace mpt::rt

#endif
