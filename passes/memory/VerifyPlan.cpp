// SPDX-License-Identifier: Apache-2.0
// --memory-verify-plan: checks the arena of every function.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Plan.h"
#include "passes/memory/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFYPLAN
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;

namespace {

struct VerifyPlan : mpt::impl::VerifyPlanBase<VerifyPlan> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && !mpt::hasAttr<mpt::MPTDialect::KernelAttrHelper>(function) &&
          failed(mpt::memory::verifyPlan(function)))
        return signalPassFailure();
    markAllAnalysesPreserved();
  }
};

} // namespace
