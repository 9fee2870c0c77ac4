// SPDX-License-Identifier: Apache-2.0
// --fusion-verify-scales: what fusion and libraries made of a step commits and returns no value that carries a scale.
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
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && failed(LoweredScaleFlow(function, states).verify()))
        signalPassFailure();
  }
};

} // namespace
