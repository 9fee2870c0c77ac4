// SPDX-License-Identifier: Apache-2.0
// --training-gradients: the gradients alone, for checks and outside optimizers.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_GRADIENTS
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Gradients : mpt::impl::GradientsBase<Gradients> {
  void runOnOperation() override {
    func::FuncOp step = findFunction(getOperation(), "step");
    if (!step)
      return signalPassFailure();
    func::FuncOp gradients = cloneFunction(step, "gradients");
    for (auto write : llvm::make_early_inc_range(gradients.getOps<train::WriteOp>()))
      write.erase();

    llvm::StringMap<Value> found;
    for (auto op : gradients.getOps<train::GradientOp>())
      found[op.getParameter()] = op.getResult();
    SmallVector<NamedValue> results;
    for (NamedValue &result : namedResults(gradients))
      if (result.first == "loss")
        results.push_back(result);
    for (auto state : getOperation().getOps<train::StateOp>()) {
      Value gradient = found.lookup(state.getSymName());
      if (!gradient)
        continue;
      // Results of steps that callers ask for by name.
      if (is_contained({"loss", "loss_scale", "grad_norm", "skipped"}, state.getTensorName())) {
        state.emitError() << "expected another name of a parameter than '" << state.getTensorName()
                          << "', which is a result of training steps: rename it, or --freeze it";
        return signalPassFailure();
      }
      results.emplace_back(state.getTensorName().str(), gradient);
    }
    setResults(gradients, results);
    eraseDeadOps(gradients);
    eraseUnusedArgument(gradients, "learning_rate");
  }
};

} // namespace
