// SPDX-License-Identifier: Apache-2.0
// Hoists state updates to their gradients.
#include "Schedule.h"

#include "Bufferizer.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

/// Ops that read `value`, through views, while the function runs.
void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (isView(user))
      collectReaders(user->getResult(0), readers);
    else if (!isa<func::ReturnOp, train::WriteOp>(user))
      readers.push_back(user);
  }
}

} // namespace

void mpt::memory::scheduleUpdates(func::FuncOp function) {
  llvm::DenseMap<Attribute, SmallVector<Operation *>> readers;
  for (auto read : function.getOps<train::ReadOp>())
    collectReaders(read.getValue(), readers[read.getStateAttr()]);
  for (auto fusion : llvm::make_early_inc_range(function.getOps<FusionOp>())) {
    bool onlyState = llvm::all_of(fusion->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    if (!onlyState || fusion->use_empty())
      continue;
    Operation *latest = nullptr;
    auto after = [&](Operation *op) {
      if (op && op != fusion && (!latest || latest->isBeforeInBlock(op)))
        latest = op;
    };
    for (Value input : fusion.getInputs())
      after(input.getDefiningOp());
    for (Operation *user : fusion->getUsers())
      for (Operation *reader : readers.lookup(cast<train::WriteOp>(user).getStateAttr()))
        after(reader);
    if (latest && latest->isBeforeInBlock(fusion))
      fusion->moveAfter(latest);
  }
}
