// SPDX-License-Identifier: Apache-2.0
// The one tree along which values of replicas are summed, however many processes compute them.
#ifndef MPT_RUNTIME_WORLD_TREE_H
#define MPT_RUNTIME_WORLD_TREE_H

#include <cstdint>
#include <vector>

namespace mpt::rt {

/// Replicas [begin, end).
struct Leaves {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
  bool operator==(const Leaves &other) const { return begin == other.begin && end == other.end; }
};

/// The canonical tree over [0, V): the node of two leaves or more has as its left child the first 2^k of them, with 2^k
/// the largest power of two below their number, and the rest as its right child. Its value is left + right. A binary
/// counter builds the same tree: it adds two neighbours as soon as they are of one size, and at the end the remaining
/// ones from right to left; so leaves can be folded as they come.
Leaves leftChild(const Leaves &node);
inline Leaves rightChild(const Leaves &node) { return {leftChild(node).end, node.end}; }

/// Whether a node of the tree over [0, replicas) has exactly `leaves`.
bool isNode(int64_t replicas, const Leaves &leaves);

/// The largest nodes of the tree over [0, replicas) that together are `owned`, in order. A process can sum them without
/// the others, which have to know no more of it.
std::vector<Leaves> cover(int64_t replicas, const Leaves &owned);

} // namespace mpt::rt

#endif
