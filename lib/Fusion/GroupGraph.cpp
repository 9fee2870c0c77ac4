// SPDX-License-Identifier: Apache-2.0
// A topological order of groups under merges (Pearce and Kelly, "A dynamic topological sort algorithm for directed
// acyclic graphs", JEA 11, 2007).
#include "GroupGraph.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpt;

GroupGraph::GroupGraph(Block &block) {
  for (Operation &op : block) {
    unsigned group = groups.size();
    position[&op] = owner[&op] = group;
    rank.push_back(group);
    order.push_back(group);
    groups.push_back({&op});
  }
}

void GroupGraph::sortByPosition(SmallVectorImpl<Operation *> &ops) const {
  llvm::sort(ops, [&](Operation *x, Operation *y) { return position.lookup(x) < position.lookup(y); });
}

SmallVector<Operation *> GroupGraph::inOrder(unsigned a, unsigned b) const {
  SmallVector<Operation *> both;
  std::merge(groups[a].begin(), groups[a].end(), groups[b].begin(), groups[b].end(), std::back_inserter(both),
             [&](Operation *x, Operation *y) { return position.lookup(x) < position.lookup(y); });
  return both;
}

/// Only groups ranked between the two are looked at.
bool GroupGraph::bringTogether(unsigned a, unsigned b) {
  unsigned low = rank[a] < rank[b] ? a : b, high = low == a ? b : a;
  llvm::DenseSet<unsigned> after; // groups in between that wait for `low`
  SmallVector<unsigned> work{low};
  while (!work.empty()) {
    unsigned group = work.pop_back_val();
    for (Operation *op : groups[group])
      for (Operation *user : op->getUsers()) {
        unsigned next = owner.lookup(user);
        if (next == high && group != low)
          return false;
        if (next != low && rank[next] < rank[high] && after.insert(next).second)
          work.push_back(next);
      }
  }
  SmallVector<unsigned> before, behind;
  for (unsigned i = rank[low] + 1; i < rank[high]; ++i)
    (after.contains(order[i]) ? behind : before).push_back(order[i]);
  unsigned place = rank[low];
  for (unsigned group : llvm::concat<unsigned>(before, SmallVector<unsigned>{low, high}, behind)) {
    rank[group] = place;
    order[place++] = group;
  }
  return true;
}

void GroupGraph::merge(unsigned a, unsigned b) {
  for (Operation *op : groups[b])
    owner[op] = a;
  groups[a] = inOrder(a, b);
  groups[b].clear();
}

void GroupGraph::append(Operation *op, unsigned group) {
  groups[owner[op]].clear();
  groups[group].push_back(op);
  owner[op] = group;
}

void GroupGraph::appendAll(unsigned into, unsigned from) {
  for (Operation *op : groups[from])
    owner[op] = into;
  llvm::append_range(groups[into], groups[from]);
  groups[from].clear();
}

void GroupGraph::isolate(Operation *op, unsigned group) {
  groups[group].assign(1, op);
  owner[op] = group;
}

bool GroupGraph::mergeAll(ArrayRef<Operation *> wanted) {
  SmallVector<Operation *> ops(wanted);
  sortByPosition(ops);
  SmallVector<unsigned> rankBefore(rank), orderBefore(order);
  unsigned into = groupOf(ops.front());
  // In the order of the program: another op between two of them keeps them apart for good.
  for (Operation *op : ArrayRef(ops).drop_front()) {
    if (bringTogether(into, position.lookup(op))) {
      append(op, into);
      continue;
    }
    for (Operation *joined : ops)
      isolate(joined, position.lookup(joined));
    rank = std::move(rankBefore);
    order = std::move(orderBefore);
    return false;
  }
  return true;
}
