// SPDX-License-Identifier: Apache-2.0
// Walks of the canonical tree.
#include "world/Tree.h"

using namespace mpt::rt;

Leaves mpt::rt::leftChild(const Leaves &node) {
  int64_t size = 1;
  while (2 * size < node.count())
    size *= 2;
  return {node.begin, node.begin + size};
}

bool mpt::rt::isNode(int64_t replicas, const Leaves &leaves) {
  Leaves node = {0, replicas};
  while (!(node == leaves)) {
    if (node.count() < 2)
      return false;
    Leaves left = leftChild(node);
    if (leaves.end <= left.end)
      node = left;
    else if (leaves.begin >= left.end)
      node = {left.end, node.end};
    else
      return false;
  }
  return true;
}

static void collect(const Leaves &node, const Leaves &owned, std::vector<Leaves> &found) {
  if (node.end <= owned.begin || owned.end <= node.begin)
    return;
  if (owned.begin <= node.begin && node.end <= owned.end) {
    found.push_back(node);
    return;
  }
  collect(leftChild(node), owned, found);
  collect(rightChild(node), owned, found);
}

std::vector<Leaves> mpt::rt::cover(int64_t replicas, const Leaves &owned) {
  std::vector<Leaves> found;
  collect({0, replicas}, owned, found);
  return found;
}
