// SPDX-License-Identifier: Apache-2.0
// A stable topological order: Kahn's algorithm with the earliest op first.
#include "mpt/Fusion/OpOrder.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <queue>

using namespace mlir;

void mpt::orderByReadiness(Block &block) {
  SmallVector<Operation *> ops;
  DenseMap<Operation *, unsigned> position;
  for (Operation &op : block.without_terminator()) {
    position[&op] = ops.size();
    ops.push_back(&op);
  }
  SmallVector<SmallVector<unsigned, 2>> readers(ops.size());
  SmallVector<unsigned> missing(ops.size());
  for (auto [i, op] : llvm::enumerate(ops)) {
    DenseSet<unsigned> sources;
    op->walk([&](Operation *inner) {
      for (Value operand : inner->getOperands())
        if (Operation *source = operand.getDefiningOp(); source && source->getBlock() == &block)
          sources.insert(position.lookup(source));
    });
    missing[i] = sources.size();
    for (unsigned source : sources)
      readers[source].push_back(i);
  }
  std::priority_queue<unsigned, std::vector<unsigned>, std::greater<unsigned>> ready;
  for (unsigned i = 0; i < ops.size(); ++i)
    if (!missing[i])
      ready.push(i);
  while (!ready.empty()) {
    unsigned next = ready.top();
    ready.pop();
    ops[next]->moveBefore(&block, block.without_terminator().end());
    for (unsigned reader : readers[next])
      if (--missing[reader] == 0)
        ready.push(reader);
  }
}
