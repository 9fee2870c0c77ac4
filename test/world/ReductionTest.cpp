// SPDX-License-Identifier: Apache-2.0
// Reductions over replicas: the bits of the canonical tree for every number of processes, and no more bytes than
// needed.
#include "world/Reduction.h"
#include "Check.h"
#include "ThreadWorld.h"
#include "TreeSum.h"
#include "core/Convert.h"

#include "mpt-c/runtime.h"

#include <cfenv>

using namespace mpt::rt;
using namespace mpt::test;
using Kind = Reduction::Kind;

static const std::vector<size_t> sizes = {0, 1, 3, 64, 65, 1000, 4099};

static unsigned seedOf(int replicas, size_t bucket, uint64_t step) {
  return static_cast<unsigned>(replicas * 10007 + static_cast<int>(bucket) * 101 + static_cast<int>(step));
}

/// Buckets of all sizes and both kinds over `steps` steps, completed from the last one on; all results are looked at.
/// Contributions come from a thread that rounds as `rounding` says.
static void train(std::shared_ptr<World> world, int replicas, int steps, int rounding = FE_TONEAREST) {
  Reduction reduction(world, replicas);
  for (size_t elements : sizes)
    for (Kind kind : {Kind::Sum, Kind::Max})
      reduction.declare(static_cast<int64_t>(elements), kind);
  int64_t local = replicas / (world ? world->size() : 1), first = (world ? world->rank() : 0) * local;
  EXPECT(reduction.localReplicas() == local);
  for (int step = 0; step < steps; ++step) {
    EXPECT(reduction.begin(static_cast<uint64_t>(step)) == MPT_OK);
    std::vector<Values> all;
    for (size_t i = 0; i < 2 * sizes.size(); ++i)
      all.push_back(
          hardValues(static_cast<size_t>(replicas), sizes[i / 2], seedOf(replicas, i, static_cast<uint64_t>(step))));
    fesetround(rounding);
    for (int64_t replica = 0; replica < local; ++replica)
      for (size_t i = all.size(); i-- > 0;)
        EXPECT(reduction.contribute(static_cast<int64_t>(i), replica,
                                    all[i][static_cast<size_t>(first + replica)].data()) == MPT_OK);
    EXPECT(fegetround() == rounding);
    fesetround(FE_TONEAREST);
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> result(sizes[i / 2]);
      EXPECT(reduction.receive(static_cast<int64_t>(i), result.data()) == MPT_OK);
      EXPECT(sameBits(result, treeSum(all[i], i % 2 == 1)));
    }
  }
}

/// Contributions of 16 bits: the same sums as of the FP32 numbers that they are, and half of reduce-scatter's bytes
/// where each process has one replica.
static void narrowContributions() {
  constexpr int64_t elements = 4099;
  for (int64_t dtype : {int64_t(MPT_BFLOAT16), int64_t(MPT_FLOAT16)})
    for (int replicas : {1, 2, 4, 6})
      for (int ranks = 1; ranks <= replicas; ++ranks) {
        if (replicas % ranks != 0)
          continue;
        onRanks(ranks, [&](std::shared_ptr<World> world) {
          Reduction reduction(world, replicas);
          int64_t bucket = reduction.declare(elements, Kind::Sum, Reduction::Result::All, dtype);
          Values all = hardValues(static_cast<size_t>(replicas), elements, 7);
          std::vector<std::vector<uint16_t>> narrow;
          for (std::vector<float> &values : all) {
            narrow.emplace_back(elements);
            fromFloat(dtype, values.data(), elements, narrow.back().data());
            toFloat(dtype, narrow.back().data(), elements, values.data());
          }
          int64_t local = replicas / (world ? world->size() : 1), first = (world ? world->rank() : 0) * local;
          EXPECT(reduction.begin(1) == MPT_OK);
          for (int64_t k = 0; k < local; ++k)
            EXPECT(reduction.contribute(bucket, k, narrow[static_cast<size_t>(first + k)].data()) == MPT_OK);
          std::vector<float> result(elements);
          EXPECT(reduction.receive(bucket, result.data()) == MPT_OK);
          EXPECT(sameBits(result, treeSum(all, false)));
        });
      }
}

static void bitsOfTheTree() {
  for (int replicas : {1, 2, 3, 4, 5, 6, 7, 8, 12}) {
    train(nullptr, replicas, 2);
    for (int ranks = 1; ranks <= replicas; ++ranks)
      if (replicas % ranks == 0)
        onRanks(ranks, [&](std::shared_ptr<World> world) { train(world, replicas, 3); });
  }
}

/// Where each rank has one node of the tree, it sends 2 (N-1)/N of the bucket.
static void bytesAreTheLeast() {
  for (int ranks : {2, 4, 8})
    for (int replicas : {ranks, 2 * ranks})
      onRanks(ranks, [&](std::shared_ptr<World> world) {
        constexpr int64_t elements = 8192;
        Reduction reduction(world, replicas);
        reduction.declare(elements, Kind::Sum);
        std::vector<float> values(elements, 1.0f), result(elements);
        EXPECT(reduction.begin(0) == MPT_OK);
        for (int64_t i = 0; i < reduction.localReplicas(); ++i)
          EXPECT(reduction.contribute(0, i, values.data()) == MPT_OK);
        EXPECT(reduction.receive(0, result.data()) == MPT_OK);
        mpt_world_stats stats = {};
        world->statistics(stats);
        EXPECT(stats.bytes_sent == 2 * (ranks - 1) * elements * 4 / ranks);
        EXPECT(stats.bytes_received == stats.bytes_sent);
        EXPECT(stats.collectives == 1);
        EXPECT(result[elements - 1] == static_cast<float>(replicas));
      });
}

static void shardsAreParts() {
  for (int ranks : {1, 2, 3, 6})
    onRanks(ranks, [&](std::shared_ptr<World> world) {
      constexpr size_t elements = 1001, replicas = 6;
      Reduction reduction(world, replicas);
      reduction.declare(elements, Kind::Sum, Reduction::Result::Shard);
      Values all = hardValues(replicas, elements, 5);
      size_t local = replicas / static_cast<size_t>(ranks), first = static_cast<size_t>(world->rank()) * local;
      EXPECT(reduction.begin(0) == MPT_OK);
      for (size_t i = 0; i < local; ++i)
        EXPECT(reduction.contribute(0, static_cast<int64_t>(i), all[first + i].data()) == MPT_OK);
      Leaves shard = reduction.shard(0);
      std::vector<float> result(static_cast<size_t>(shard.count())), expected = treeSum(all, false);
      EXPECT(reduction.receive(0, result.data()) == MPT_OK);
      EXPECT(sameBits(result, {expected.begin() + shard.begin, expected.begin() + shard.end}));
    });
}

/// Callers may have switched their thread to other roundings, also before they made the world and with it its thread.
static void roundingIsOurs() {
  fesetround(FE_UPWARD);
  onRanks(2, [&](std::shared_ptr<World> world) { train(world, 4, 1, world->rank() ? FE_UPWARD : FE_DOWNWARD); });
  fesetround(FE_TONEAREST);
}

/// Ranks that start buckets in different orders are told, instead of adding values that do not belong together.
static void otherOrdersAreRefused() {
  onRanks(2, [&](std::shared_ptr<World> world) {
    Reduction reduction(world, 2);
    reduction.declare(100, Kind::Sum);
    reduction.declare(100, Kind::Sum);
    std::vector<float> values(100);
    EXPECT(reduction.begin(7) == MPT_OK);
    for (int64_t i : {0, 1})
      reduction.contribute(world->rank() ? 1 - i : i, 0, values.data());
    EXPECT(reduction.receive(0, values.data()) == MPT_INCOMPATIBLE);
    std::string text = mpt_last_error();
    EXPECT(text.find("bucket 0 of step 7") != std::string::npos &&
           text.find("bucket 1 of step 7") != std::string::npos);
    EXPECT(reduction.begin(8) == MPT_INCOMPATIBLE);
  });
}

static void misuseIsRefused() {
  Reduction reduction(nullptr, 2);
  reduction.declare(1, Kind::Sum);
  float value = 1;
  EXPECT(reduction.begin(0) == MPT_OK);
  EXPECT(reduction.contribute(0, 1, &value) == MPT_INTERNAL);
  EXPECT(reduction.contribute(0, 0, &value) == MPT_OK);
  EXPECT(reduction.receive(0, &value) == MPT_INTERNAL);
  EXPECT(reduction.begin(1) == MPT_OK); // drops the half
  EXPECT(reduction.contribute(0, 0, &value) == MPT_OK && reduction.contribute(0, 1, &value) == MPT_OK);
  EXPECT(reduction.contribute(0, 2, &value) == MPT_INTERNAL);
  EXPECT(reduction.receive(0, &value) == MPT_OK && value == 2);
  onRanks(2, [&](std::shared_ptr<World> world) {
    Reduction odd(world, 3);
    EXPECT(odd.begin(0) == MPT_INVALID_ARGUMENT);
    EXPECT(std::string(mpt_last_error()).find("divides the 3 replicas, got 2") != std::string::npos);
  });
}

static void collectives() {
  for (int ranks : {2, 3, 5})
    onRanks(ranks, [&](std::shared_ptr<World> world) {
      EXPECT(world->barrier() == MPT_OK);
      for (int root = 0; root < ranks; ++root)
        for (size_t bytes : {size_t(0), size_t(1), size_t(1000), size_t(300007)}) {
          std::vector<uint8_t> data(bytes, static_cast<uint8_t>(world->rank() + 1));
          EXPECT(world->broadcast(root, data.data(), static_cast<int64_t>(bytes)) == MPT_OK);
          EXPECT(data == std::vector<uint8_t>(bytes, static_cast<uint8_t>(root + 1)));
        }
      EXPECT(world->agree("the model", "same") == MPT_OK);
      bool differs = world->rank() == ranks - 1;
      EXPECT(world->agree("the policy", differs ? "fp32, adamw" : "fp32, sgd") == MPT_INCOMPATIBLE);
      std::string text = mpt_last_error(), rank = std::to_string(ranks - 1);
      EXPECT(text == "the policy of rank " + rank + " is not that of rank 0: expected 'fp32, sgd', got 'fp32, adamw'");
      EXPECT(world->agree("a long text", std::string(100000, 'x') + (differs ? "y" : "z")) == MPT_INCOMPATIBLE);
      EXPECT(world->agree("the rest", "") == MPT_OK);
    });
}

static void abandonedWorldsFailEverywhere() {
  onRanks(3, [&](std::shared_ptr<World> world) {
    // The others may hear of it before they have begun the barrier that it has passed.
    mpt_status status = world->barrier();
    EXPECT(status == MPT_OK || (status == MPT_PEER_LOST && world->rank() != 1));
    if (world->rank() == 1)
      EXPECT(world->abandon("its disk is full") == MPT_OK);
    EXPECT(world->barrier() == MPT_PEER_LOST);
    EXPECT(std::string(mpt_last_error()) == "rank 1 cannot go on: its disk is full");
  });
}

int main() {
  narrowContributions();
  bitsOfTheTree();
  bytesAreTheLeast();
  shardsAreParts();
  roundingIsOurs();
  otherOrdersAreRefused();
  misuseIsRefused();
  collectives();
  abandonedWorldsFailEverywhere();
  return finish("ReductionTest");
}
