// SPDX-License-Identifier: Apache-2.0
// The exchange of a bucket's nodes between ranks: reduce-scatter along the canonical tree, then all-gather.
#include "core/Convert.h"
#include "core/Types.h"
#include "world/Bucket.h"
#include "world/NodeSum.h"
#include "world/Sums.h"

using namespace mpt::rt;

namespace {

/// Sums of `count` of a bucket's elements.
auto sumOf(const Bucket &bucket, int64_t count) {
  auto combine = [&bucket, count](float *out, const float *a, const float *b) { bucket.combine(out, a, b, count); };
  return NodeSum<decltype(combine)>(combine);
}

/// The elements that rank `owner` adds.
Leaves partOf(const ReductionPlan &plan, const Bucket &bucket, int owner, bool whole) {
  return whole ? Leaves{0, bucket.elements} : chunkOf(bucket.elements, owner, plan.ranks);
}

int64_t bytesOf(const Leaves &elements) { return elements.count() * static_cast<int64_t>(sizeof(float)); }

} // namespace

/// reduce() for contributions of 16 bits, one a rank: the others' are widened when they are there.
static Failure reduceNarrow(Communicator &communicator, const Tag &tag, const ReductionPlan &plan, Bucket &bucket,
                            bool whole) {
  auto part = [&](int owner) { return partOf(plan, bucket, owner, whole); };
  Leaves own = part(plan.rank);
  const int64_t count = own.count(), size = sizeOf(bucket.dtype), bytes = count * size;
  float *space = bucket.received.get(plan.ranks * count);
  bucket.narrowReceived.resize(static_cast<size_t>(plan.ranks * bytes));
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  for (int peer = 0; peer < plan.ranks; ++peer)
    if (peer != plan.rank) {
      Leaves theirs = part(peer);
      sends.push_back({peer, bucket.narrow.data() + theirs.begin * size, theirs.count() * size});
      receives.push_back({peer, bucket.narrowReceived.data() + peer * bytes, bytes});
    }
  if (Failure failure = communicator.exchange(tag, sends, receives))
    return failure;
  auto sum = sumOf(bucket, count);
  for (int peer = 0; peer < plan.ranks; ++peer) {
    float *at = peer == plan.rank ? bucket.slot(plan, 0) + own.begin : space + peer * count;
    if (peer != plan.rank)
      toFloat(bucket.dtype, bucket.narrowReceived.data() + peer * bytes, count, at);
    sum.append({peer, peer + 1}, at);
  }
  DefaultRounding rounding;
  sum.run(plan.replicas, bucket.slot(plan, 0) + own.begin);
  return {};
}

/// Each rank sends `whole` or the receiver's chunk of its nodes, and adds all that it gets.
static Failure reduce(Communicator &communicator, const Tag &tag, const ReductionPlan &plan, Bucket &bucket,
                      bool whole) {
  auto part = [&](int owner) { return partOf(plan, bucket, owner, whole); };
  Leaves own = part(plan.rank);
  size_t total = 0;
  for (auto &nodes : plan.owners)
    total += nodes.size();
  float *space = bucket.received.get(static_cast<int64_t>(total) * own.count());
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  auto sum = sumOf(bucket, own.count());
  for (int peer = 0; peer < plan.ranks; ++peer) {
    auto &nodes = plan.owners[static_cast<size_t>(peer)];
    for (size_t i = 0; i < nodes.size(); ++i) {
      float *at = space;
      if (peer == plan.rank) {
        at = bucket.slot(plan, static_cast<int64_t>(i)) + own.begin;
      } else {
        receives.push_back({peer, at, bytesOf(own)});
        space += own.count();
      }
      sum.append(nodes[i], at);
    }
    if (peer != plan.rank)
      for (size_t i = 0; i < plan.owners[static_cast<size_t>(plan.rank)].size(); ++i)
        sends.push_back({peer, bucket.slot(plan, static_cast<int64_t>(i)) + part(peer).begin, bytesOf(part(peer))});
  }
  if (Failure failure = communicator.exchange(tag, sends, receives))
    return failure;
  DefaultRounding rounding;
  sum.run(plan.replicas, bucket.slot(plan, 0) + own.begin);
  return {};
}

static Failure gather(Communicator &communicator, const Tag &tag, const ReductionPlan &plan, Bucket &bucket) {
  std::vector<Outgoing> sends;
  std::vector<Incoming> receives;
  float *values = bucket.slot(plan, 0);
  Leaves own = chunkOf(bucket.elements, plan.rank, plan.ranks);
  for (int peer = 0; peer < plan.ranks; ++peer) {
    if (peer == plan.rank)
      continue;
    Leaves theirs = chunkOf(bucket.elements, peer, plan.ranks);
    sends.push_back({peer, values + own.begin, bytesOf(own)});
    receives.push_back({peer, values + theirs.begin, bytesOf(theirs)});
  }
  return communicator.exchange(tag, sends, receives);
}

Failure mpt::rt::reduceAcross(Communicator &communicator, Tag tag, const ReductionPlan &plan, Bucket &bucket) {
  bool whole = bucket.elements <= smallElements;
  if (Failure failure = (bucket.travelsNarrow(plan) ? reduceNarrow : reduce)(communicator, tag, plan, bucket, whole))
    return failure;
  if (whole || bucket.result == Reduction::Result::Shard)
    return {};
  ++tag.phase;
  return gather(communicator, tag, plan, bucket);
}
