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
/// the largest power of two below their number, and the rest as its right child. Its value is left + right. This is
/// also what a binary counter builds that adds two neighbours as soon as they are of one size, and at the end what is
/// left from right to left; so leaves can be folded as they come.
Leaves leftChild(const Leaves &node);
inline Leaves rightChild(const Leaves &node) { return {leftChild(node).end, node.end}; }

/// Whether `leaves` are those of a node of the tree over [0, replicas).
bool isNode(int64_t replicas, const Leaves &leaves);

/// The largest nodes of the tree over [0, replicas) that together are `owned`, in order. What a process can sum without
/// the others, and all that they have to know of it.
std::vector<Leaves> cover(int64_t replicas, const Leaves &owned);

} // namespace mpt::rt

#endif
