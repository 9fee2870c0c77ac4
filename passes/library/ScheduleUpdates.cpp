// SPDX-License-Identifier: Apache-2.0
// --library-schedule-updates: a state is updated as soon as its gradient is there and its old value has been read.
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Memory/Updates.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#define DEBUG_TYPE "library-schedule-updates"

namespace mpt {
#define GEN_PASS_DEF_SCHEDULEUPDATES
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct ScheduleUpdates : mpt::impl::ScheduleUpdatesBase<ScheduleUpdates> {
  using ScheduleUpdatesBase::ScheduleUpdatesBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        schedule(function);
  }

private:
  void schedule(func::FuncOp function) {
    memory::Updates updates(function);
    for (auto fusion : llvm::to_vector(function.getOps<FusionOp>())) {
      Operation *before = fusion->getPrevNode();
      if (succeeded(hoist(fusion, updates)))
        numMoved += fusion->getPrevNode() != before;
    }
    // A gate that has moved with a later update may have been the last op that an earlier one waits for.
    constexpr int rounds = 16;
    for (int i = 0; i < rounds; ++i) {
      SmallVector<memory::Updates::Blocker> blockers = updates.blockers(function);
      for (const memory::Updates::Blocker &blocker : blockers)
        (void)hoist(blocker.update, updates);
      if (blockers.empty())
        break;
    }
  }

  static LogicalResult hoist(FusionOp fusion, const memory::Updates &updates) {
    SmallVector<Attribute> states = updates.statesOf(fusion);
    if (states.empty())
      return refuse(DEBUG_TYPE, fusion) << "not an update: expected results that train.write alone reads, got others";
    Operation *latest = updates.latestBefore(fusion, states);
    if (!latest || !latest->isBeforeInBlock(fusion))
      return refuse(DEBUG_TYPE, fusion) << "not earlier: expected the old value to be read before, got a later reader";
    // First what it waits for, such as the finite check of its gradient.
    for (FusionOp gate : memory::Updates::gatesOf(fusion))
      if (latest->isBeforeInBlock(gate)) {
        moveUp(gate, latest);
        latest = gate;
      }
    moveUp(fusion, latest);
    return success();
  }

  /// Moves a fusion behind `latest`, with the reads and views that it reads.
  static void moveUp(FusionOp fusion, Operation *latest) {
    fusion->moveAfter(latest);
    for (Value input : fusion.getInputs()) {
      Operation *before = fusion;
      // A view of which an earlier input has a part has moved with that part.
      for (Operation *op = input.getDefiningOp(); op && fusion->isBeforeInBlock(op);
           op = op->getNumOperands() ? op->getOperand(0).getDefiningOp() : nullptr) {
        op->moveBefore(before);
        before = op;
      }
    }
  }
};

} // namespace
