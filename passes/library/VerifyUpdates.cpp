// SPDX-License-Identifier: Apache-2.0
// --library-verify-updates: no GEMM, convolution or kernel runs between an update and the last op that it waits for.
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
    SmallVector<memory::Updates::Blocker> blockers = updates.blockers(function);
    for (const auto &[update, latest, between] : blockers) {
      InFlightDiagnostic diagnostic = FusionOp(update).emitOpError()
                                      << "expected the update of " << updates.statesOf(update).front()
                                      << " directly behind the last op that it waits for, got " << between->getName()
                                      << " between them; run --library-schedule-updates";
      diagnostic.attachNote(latest->getLoc()) << "the update waits for this op";
    }
    return success(blockers.empty());
  }
};

} // namespace
