// SPDX-License-Identifier: Apache-2.0
// --library-schedule-updates: a state is updated as soon as its gradient is there and its old value has been read.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Memory/Destinations.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define DEBUG_TYPE "library-schedule-updates"

namespace mpt {
#define GEN_PASS_DEF_SCHEDULEUPDATES
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// States and the ops that read their old values.
using StateReaders = llvm::DenseMap<Attribute, SmallVector<Operation *>>;

/// Ops that read `value`, through views, while the function runs. Ops without results take effect at its end.
void collectReaders(Value value, SmallVectorImpl<Operation *> &readers) {
  for (Operation *user : value.getUsers()) {
    if (isOperandView(user) || memory::onlyBroadcast(user))
      collectReaders(user->getResult(0), readers);
    else if (user->getNumResults() != 0)
      readers.push_back(user);
  }
}

/// Adds the writes of the results of `op`, through views. False where something else reads a result.
bool collectWrites(Operation *op, SmallVectorImpl<train::WriteOp> &writes) {
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    if (auto write = dyn_cast<train::WriteOp>(user))
      writes.push_back(write);
    return isa<train::WriteOp>(user) || (isOperandView(user) && collectWrites(user, writes));
  });
}

struct ScheduleUpdates : mpt::impl::ScheduleUpdatesBase<ScheduleUpdates> {
  using ScheduleUpdatesBase::ScheduleUpdatesBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        schedule(function);
  }

private:
  void schedule(func::FuncOp function) {
    StateReaders readers;
    for (auto read : function.getOps<train::ReadOp>())
      collectReaders(read.getValue(), readers[read.getStateAttr()]);
    for (auto fusion : llvm::make_early_inc_range(function.getOps<FusionOp>())) {
      Operation *before = fusion->getPrevNode();
      if (succeeded(hoist(fusion, readers)))
        numMoved += fusion->getPrevNode() != before;
    }
  }

  static LogicalResult hoist(FusionOp fusion, const StateReaders &readers) {
    SmallVector<train::WriteOp> writes;
    if (!collectWrites(fusion, writes) || writes.empty())
      return refuse(DEBUG_TYPE, fusion) << "not an update: expected results that train.write alone reads, got others";
    Operation *latest = latestBefore(fusion, writes, readers);
    if (!latest || !latest->isBeforeInBlock(fusion))
      return refuse(DEBUG_TYPE, fusion) << "not earlier: expected the old value to be read before, got a later reader";
    fusion->moveAfter(latest);
    for (Value input : fusion.getInputs()) {
      Operation *before = fusion;
      for (Operation *view = input.getDefiningOp(); view && isOperandView(view) && fusion->isBeforeInBlock(view);
           view = view->getOperand(0).getDefiningOp()) {
        view->moveBefore(before);
        before = view;
      }
    }
    return success();
  }

  /// The last op that `update` has to wait for: its operands' makers and the readers of the states that it replaces.
  static Operation *latestBefore(FusionOp update, ArrayRef<train::WriteOp> writes, const StateReaders &readers) {
    Operation *latest = nullptr;
    auto after = [&](Operation *op) {
      if (op && op != update && (!latest || latest->isBeforeInBlock(op)))
        latest = op;
    };
    for (Value input : update.getInputs()) {
      Operation *source = input.getDefiningOp();
      while (source && isOperandView(source))
        source = source->getOperand(0).getDefiningOp();
      after(source);
    }
    for (train::WriteOp write : writes)
      for (Operation *reader : readers.lookup(write.getStateAttr()))
        after(reader);
    return latest;
  }
};

} // namespace
