// SPDX-License-Identifier: Apache-2.0
// --fusion-verify-scales: a fused step with library calls commits and returns no value that carries a scale.
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Precision/LoweredScales.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFYSCALES
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct VerifyScales : mpt::impl::VerifyScalesBase<VerifyScales> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    markAllAnalysesPreserved();
    if (!hasScales(module))
      return;
    States states;
    for (auto state : module.getOps<train::StateOp>())
      states[state.getSymNameAttr()] = state;
    // Functions of a step of replicas come behind the functions whose values they take.
    SmallVector<func::FuncOp> functions(module.getOps<func::FuncOp>());
    llvm::stable_sort(functions, [](func::FuncOp a, func::FuncOp b) { return phaseOf(a) < phaseOf(b); });
    CrossingScales crossing;
    for (func::FuncOp function : functions)
      if (!function.isExternal() && failed(LoweredScaleFlow(function, states, crossing).verify()))
        signalPassFailure();
  }

private:
  static int64_t phaseOf(func::FuncOp function) {
    auto phase = getAttr<dist::DistDialect::PhaseAttrHelper>(function);
    return phase ? phase.getInt() : INT64_MAX;
  }
};

} // namespace
