// SPDX-License-Identifier: Apache-2.0
// --library-verify-updates: no GEMM, convolution or kernel runs between an update and the last op that it waits for.
// Matcher: ops that take no memory and no time.
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Memory/Updates.h"
#include "passes/library/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFYUPDATES
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct VerifyUpdates : mpt::impl::VerifyUpdatesBase<VerifyUpdates> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && failed(verify(function)))
        signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  static LogicalResult verify(func::FuncOp function) {
    memory::Updates updates(function);
    DenseSet<Operation *> gates; // of one update behind the same op as another's
    for (auto fusion : function.getOps<FusionOp>())
      if (!updates.statesOf(fusion).empty())
        for (FusionOp gate : memory::Updates::gatesOf(fusion))
          gates.insert(gate);
    LogicalResult result = success();
    for (auto fusion : function.getOps<FusionOp>()) {
      SmallVector<Attribute> states = updates.statesOf(fusion);
      Operation *latest = states.empty() ? nullptr : updates.latestBefore(fusion, states);
      if (!latest || !latest->isBeforeInBlock(fusion))
        continue;
      for (Operation *op = latest->getNextNode(); op != fusion; op = op->getNextNode())
        if (computes(op, updates) && !gates.contains(op)) {
          InFlightDiagnostic diagnostic = fusion.emitOpError()
                                          << "expected the update of " << states.front()
                                          << " directly behind the last op that it waits for, got " << op->getName()
                                          << " between them; run --library-schedule-updates";
          diagnostic.attachNote(latest->getLoc()) << "the update waits for this op";
          result = failure();
          break;
        }
    }
    return result;
  }

  /// Ops that take memory or time of their own; updates that wait for the same op are behind one another.
  static bool computes(Operation *op, const memory::Updates &updates) {
    if (isViewOp(op) || isa<ConstantOp, train::ReadOp, train::WriteOp>(op))
      return false;
    auto fusion = dyn_cast<FusionOp>(op);
    return !fusion || updates.statesOf(fusion).empty();
  }
};

} // namespace
