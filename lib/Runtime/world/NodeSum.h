// SPDX-License-Identifier: Apache-2.0
// The nodes that ranks have exchanged, added up along the canonical tree, wherever their values lie.
#ifndef MPT_RUNTIME_WORLD_NODESUM_H
#define MPT_RUNTIME_WORLD_NODESUM_H

#include "world/Tree.h"

#include <cstddef>

namespace mpt::rt {

/// `Combine` is called as combine(out, a, b) for addresses of values; `out` is `a`, `b`, or apart from both.
template <typename Combine> class NodeSum {
  Combine combine;
  std::vector<Leaves> nodes; // in order
  std::vector<float *> values;

  /// Leaves the value of `node` in the place of its leftmost summand, or in `out`.
  float *add(const Leaves &node, size_t &next, float *out) {
    if (nodes[next] == node)
      return values[next++];
    float *left = add(leftChild(node), next, nullptr), *right = add(rightChild(node), next, nullptr);
    float *to = out ? out : left;
    combine(to, left, right);
    return to;
  }

public:
  explicit NodeSum(Combine combine) : combine(combine) {}
  void append(const Leaves &node, float *at) {
    nodes.push_back(node);
    values.push_back(at);
  }
  /// Where the sum is: in `out`, which may be one of the values, or in the one value there is. The others' contents are
  /// lost.
  float *run(int64_t replicas, float *out) {
    size_t next = 0;
    return add({0, replicas}, next, out);
  }
};

} // namespace mpt::rt

#endif
