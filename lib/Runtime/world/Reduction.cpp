// SPDX-License-Identifier: Apache-2.0
// Folding of local replicas, and the life of a bucket within a step.
#include "world/Reduction.h"

#include "core/Convert.h"
#include "core/Error.h"
#include "core/Types.h"
#include "world/Bucket.h"
#include "world/Sums.h"
#include "world/World.h"

#include <algorithm>
#include <cassert>
#include <cinttypes>
#include <cstring>

using namespace mpt::rt;

ReductionPlan::ReductionPlan(int rank, int ranks, int64_t replicas)
    : rank(rank), ranks(ranks), replicas(replicas), slots(1) {
  if (replicas < 1 || replicas % ranks != 0)
    return; // begin() refuses it
  int64_t share = replicas / ranks;
  for (int r = 0; r < ranks; ++r)
    owners.push_back(cover(replicas, {r * share, (r + 1) * share}));
  // The binary counter, run once on ranges, for its merges after each leaf.
  std::vector<Leaves> stack;
  for (int64_t i = rank * share; i < (rank + 1) * share; ++i) {
    Leaf leaf = {static_cast<int>(stack.size()), 0};
    stack.push_back({i, i + 1});
    while (stack.size() > 1 && isNode(replicas, {stack[stack.size() - 2].begin, stack.back().end})) {
      stack[stack.size() - 2].end = stack.back().end;
      stack.pop_back();
      ++leaf.merges;
    }
    slots = std::max(slots, leaf.slot + (leaf.merges ? 0 : 1));
    leaves.push_back(leaf);
  }
  assert(stack == owners[static_cast<size_t>(rank)]);
}

void Bucket::combine(float *out, const float *a, const float *b, int64_t count) const {
  (kind == Reduction::Kind::Sum ? addTo : maximumTo)(out, a, b, count);
}

Reduction::Reduction(std::shared_ptr<World> given, int64_t replicas)
    : world(given && given->size() > 1 ? std::move(given) : nullptr),
      plan(std::make_shared<ReductionPlan>(world ? world->rank() : 0, world ? world->size() : 1, replicas)) {}

// Buckets that are under way belong to the world's thread, too.
Reduction::~Reduction() = default;

int64_t Reduction::localReplicas() const { return static_cast<int64_t>(plan->leaves.size()); }

int64_t Reduction::declare(int64_t elements, Kind kind, Result result, int64_t dtype) {
  auto bucket = std::make_shared<Bucket>();
  bucket->number = static_cast<uint32_t>(buckets.size());
  bucket->elements = elements;
  bucket->kind = kind;
  bucket->result = result;
  bucket->dtype = dtype;
  buckets.push_back(std::move(bucket));
  return static_cast<int64_t>(buckets.size()) - 1;
}

Leaves Reduction::shard(int64_t bucket) const {
  return chunkOf(buckets[static_cast<size_t>(bucket)]->elements, plan->rank, plan->ranks);
}

mpt_status Reduction::begin(uint64_t next) {
  if (plan->leaves.empty())
    return fail(MPT_INVALID_ARGUMENT, "expected a number of processes that divides the %" PRId64 " replicas, got %d",
                plan->replicas, plan->ranks);
  if (world)
    if (mpt_status status = world->check())
      return status;
  for (auto &bucket : buckets) {
    if (bucket->ticket)
      if (mpt_status status = world->wait(bucket->ticket))
        return status;
    bucket->ticket = 0;
    bucket->contributed = 0;
  }
  step = next;
  return MPT_OK;
}

mpt_status Reduction::contribute(int64_t number, int64_t replica, const void *given) {
  std::shared_ptr<Bucket> bucket = buckets[static_cast<size_t>(number)];
  if (replica != bucket->contributed || replica >= localReplicas())
    return fail(MPT_INTERNAL,
                "bucket %" PRId64 ": expected the values of replica %" PRId64 " of %" PRId64 ", got %" PRId64, number,
                bucket->contributed, localReplicas(), replica);
  DefaultRounding rounding;
  ReductionPlan::Leaf leaf = plan->leaves[static_cast<size_t>(replica)];
  int64_t count = bucket->elements;
  auto *values = static_cast<const float *>(given);
  if (bucket->dtype != MPT_FLOAT32) {
    float *wide = bucket->widened.get(count);
    toFloat(bucket->dtype, given, count, wide);
    values = wide;
    auto *bytes = static_cast<const uint8_t *>(given);
    if (bucket->travelsNarrow(*plan))
      bucket->narrow.assign(bytes, bytes + count * sizeOf(bucket->dtype));
  }
  if (!leaf.merges) {
    memcpy(bucket->slot(*plan, leaf.slot), values, static_cast<size_t>(count) * sizeof(float));
  } else {
    float *top = bucket->slot(*plan, leaf.slot - 1);
    bucket->combine(top, top, values, count);
    for (int i = 2; i <= leaf.merges; ++i) {
      float *below = bucket->slot(*plan, leaf.slot - i);
      bucket->combine(below, below, top, count);
      top = below;
    }
  }
  if (++bucket->contributed < localReplicas() || !world)
    return MPT_OK;
  Tag tag;
  tag.kind = Tag::Reduce;
  tag.bucket = bucket->number;
  tag.step = step;
  bucket->ticket = world->start(tag, [bucket, plan = plan](Communicator &communicator, const Tag &tag) {
    return reduceAcross(communicator, tag, *plan, *bucket);
  });
  return MPT_OK;
}

mpt_status Reduction::receive(int64_t number, float *values) {
  Bucket &bucket = *buckets[static_cast<size_t>(number)];
  if (bucket.contributed != localReplicas())
    return fail(MPT_INTERNAL,
                "bucket %" PRId64 ": expected %" PRId64 " replicas before its result is read, got %" PRId64, number,
                localReplicas(), bucket.contributed);
  if (bucket.ticket)
    if (mpt_status status = world->wait(bucket.ticket))
      return status;
  bucket.ticket = 0;
  Leaves wanted = bucket.result == Result::Shard ? shard(number) : Leaves{0, bucket.elements};
  memcpy(values, bucket.slot(*plan, 0) + wanted.begin, static_cast<size_t>(wanted.count()) * sizeof(float));
  return MPT_OK;
}
