// SPDX-License-Identifier: Apache-2.0
// Graphs that streams of the fake driver record.
#ifndef MPT_TEST_CUDA_GRAPHS_H
#define MPT_TEST_CUDA_GRAPHS_H

#include "cuda/Driver.h"

#include <functional>
#include <memory>
#include <vector>

namespace standin {

namespace cu = mpt::rt::cu;
// The driver's errors of recordings and of addresses.
inline constexpr cu::Result captureUnsupported = 900, captureInvalidated = 901, captureUnjoined = 904,
                            captureIsolation = 905, illegalAddress = 700, invalidHandle = 400;

/// A recorded operation: the first lane belongs to the stream that began, others were forked from it.
struct Node {
  std::function<void()> work;
  size_t lane = 0, position = 0; // without work: a lane to wait for, up to here
};
struct Lane {
  std::vector<Node> nodes;
  size_t joined = 0; // of its nodes, that the first lane waits for
};
struct CapturedGraph {
  std::shared_ptr<std::vector<Lane>> lanes = std::make_shared<std::vector<Lane>>(1);
  double milliseconds = 0;
  bool spoiled = false;       // by a call that cannot be recorded
  bool hasCollective = false; // work that waits for other processes
};
/// Executes a lane of a graph up to `position`: others as late as it waits for them.
inline void executeLane(const std::vector<Lane> &lanes, std::vector<size_t> &done, size_t lane, size_t position) {
  while (done[lane] < position) {
    const Node &node = lanes[lane].nodes[done[lane]++];
    if (node.work)
      node.work();
    else
      executeLane(lanes, done, node.lane, node.position);
  }
}

} // namespace standin

#endif
