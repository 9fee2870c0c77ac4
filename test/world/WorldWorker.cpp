// SPDX-License-Identifier: Apache-2.0
// One rank, as a process of its own: test/python/test_world*.py start several, and stop, kill and cut them.
//
//   WorldWorker MODE [KEY=VALUE...]
//
// bits    compares reductions of all sizes with the canonical tree; prints "ok"
// train   `steps` steps of a model that is one bucket; prints a hash of its state
// bytes   one reduction of `elements`; prints bytes sent and received
// Keys are mpt_world_options' fields, besides steps, elements, replicas and pause (milliseconds of computing a step).
// Ends with the status that a call returned, its text on standard error.
#include "TreeSum.h"
#include "world/Reduction.h"
#include "world/World.h"

#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <thread>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

using Arguments = std::map<std::string, std::string>;

int64_t number(const Arguments &arguments, const char *key, int64_t otherwise) {
  auto found = arguments.find(key);
  return found == arguments.end() ? otherwise : std::stoll(found->second);
}

double seconds(const Arguments &arguments, const char *key) {
  auto found = arguments.find(key);
  return found == arguments.end() ? 0 : std::stod(found->second);
}

const char *text(const Arguments &arguments, const char *key) {
  auto found = arguments.find(key);
  return found == arguments.end() ? nullptr : found->second.c_str();
}

/// Ends the process with the status of a call that failed.
void require(mpt_status status) {
  if (status == MPT_OK)
    return;
  fprintf(stderr, "status %d: %s\n", status, mpt_last_error());
  exit(status);
}

void wrong(const char *what, int replicas, size_t elements) {
  fprintf(stderr, "wrong %s: %d replicas, %zu elements\n", what, replicas, elements);
  exit(100);
}

void compareBits(std::shared_ptr<World> world, int replicas) {
  std::vector<size_t> sizes = {0, 1, 3, 64, 65, 1000, 4099};
  if (replicas == world->size())
    sizes.push_back(600001); // more than a socket takes at once
  Reduction reduction(world, replicas);
  for (size_t elements : sizes)
    for (auto kind : {Reduction::Kind::Sum, Reduction::Kind::Max})
      reduction.declare(static_cast<int64_t>(elements), kind);
  size_t local = static_cast<size_t>(reduction.localReplicas()), first = static_cast<size_t>(world->rank()) * local;
  for (unsigned step = 0; step < 2; ++step) {
    require(reduction.begin(step));
    std::vector<Values> all;
    for (size_t i = 0; i < 2 * sizes.size(); ++i)
      all.push_back(hardValues(static_cast<size_t>(replicas), sizes[i / 2], step * 1000 + static_cast<unsigned>(i)));
    for (size_t replica = 0; replica < local; ++replica)
      for (size_t i = all.size(); i-- > 0;)
        require(reduction.contribute(static_cast<int64_t>(i), static_cast<int64_t>(replica),
                                     all[i][first + replica].data()));
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> result(sizes[i / 2]);
      require(reduction.receive(static_cast<int64_t>(i), result.data()));
      if (!sameBits(result, treeSum(all[i], i % 2 == 1)))
        wrong("bits", replicas, result.size());
    }
  }
}

int bits(mpt_world *world) {
  for (int replicas : {1, 2, 3, 4, 6, 8, 12})
    if (replicas % mpt_world_size(world) == 0)
      compareBits(world->world, replicas);
  std::vector<uint8_t> data(1000003, static_cast<uint8_t>(mpt_world_rank(world)));
  int root = mpt_world_size(world) - 1;
  require(mpt_world_broadcast(world, root, data.data(), static_cast<int64_t>(data.size())));
  if (data != std::vector<uint8_t>(data.size(), static_cast<uint8_t>(root)))
    wrong("broadcast", 0, data.size());
  require(mpt_world_agree(world, "the mode", "bits"));
  printf("ok\n");
  return 0;
}

/// A state that every step changes by a sum over replicas that depends on it.
int train(mpt_world *world, const Arguments &arguments) {
  auto elements = static_cast<size_t>(number(arguments, "elements", 10000));
  int64_t steps = number(arguments, "steps", 100), pause = number(arguments, "pause", 0);
  Reduction reduction(world->world, number(arguments, "replicas", 4));
  int64_t bucket = reduction.declare(static_cast<int64_t>(elements), Reduction::Kind::Sum);
  int64_t first = mpt_world_rank(world) * reduction.localReplicas();
  std::vector<float> state(elements, 0.5f), gradient(elements);
  for (int64_t step = 0; step < steps; ++step) {
    require(reduction.begin(static_cast<uint64_t>(step)));
    for (int64_t replica = 0; replica < reduction.localReplicas(); ++replica) {
      for (size_t i = 0; i < elements; ++i)
        gradient[i] = std::sin(state[i] * static_cast<float>(first + replica + 1) + static_cast<float>(i));
      std::this_thread::sleep_for(std::chrono::milliseconds(pause));
      require(reduction.contribute(bucket, replica, gradient.data()));
    }
    require(reduction.receive(bucket, gradient.data()));
    for (size_t i = 0; i < elements; ++i)
      state[i] -= 0.01f * gradient[i];
    if (step == 0) {
      printf("training\n"); // whoever waits for it knows that all ranks are there
      fflush(stdout);
    }
  }
  uint64_t hash = 14695981039346656037u;
  for (float value : state) {
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    hash = (hash ^ word) * 1099511628211u;
  }
  printf("state %016llx\n", static_cast<unsigned long long>(hash));
  return 0;
}

int bytes(mpt_world *world, const Arguments &arguments) {
  auto elements = number(arguments, "elements", 1 << 20);
  Reduction reduction(world->world, number(arguments, "replicas", mpt_world_size(world)));
  reduction.declare(elements, Reduction::Kind::Sum);
  std::vector<float> values(static_cast<size_t>(elements), 1.0f);
  require(reduction.begin(0));
  for (int64_t i = 0; i < reduction.localReplicas(); ++i)
    require(reduction.contribute(0, i, values.data()));
  require(reduction.receive(0, values.data()));
  mpt_world_stats stats = {};
  stats.version = MPT_WORLD_VERSION;
  require(mpt_world_statistics(world, &stats));
  printf("sent %lld received %lld\n", static_cast<long long>(stats.bytes_sent),
         static_cast<long long>(stats.bytes_received));
  return 0;
}

} // namespace

int main(int argc, char **argv) {
  Arguments arguments;
  for (int i = 2; i < argc; ++i)
    if (const char *equals = strchr(argv[i], '='))
      arguments[std::string(argv[i]).substr(0, static_cast<size_t>(equals - argv[i]))] = equals + 1;
  mpt_world_options options = {};
  options.version = MPT_WORLD_VERSION;
  options.rank = static_cast<int32_t>(number(arguments, "rank", 0));
  options.size = static_cast<int32_t>(number(arguments, "size", 0));
  options.transport = text(arguments, "transport");
  options.address = text(arguments, "address");
  options.port = static_cast<int32_t>(number(arguments, "port", 0));
  options.token = text(arguments, "token");
  options.mpi_library = text(arguments, "mpi_library");
  options.timeout_seconds = seconds(arguments, "timeout_seconds");
  options.patience_seconds = seconds(arguments, "patience_seconds");
  options.start_seconds = seconds(arguments, "start_seconds");
  mpt_world *world;
  require(mpt_world_init(&options, &world));
  std::string mode = argc > 1 ? argv[1] : "";
  int status = mode == "bits" ? bits(world) : mode == "train" ? train(world, arguments) : bytes(world, arguments);
  mpt_world_destroy(world);
  return status;
}
