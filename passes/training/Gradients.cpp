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
      if (result.role == train::Role::loss)
        results.push_back(result);
    for (auto state : getOperation().getOps<train::StateOp>()) {
      Value gradient = found.lookup(state.getSymName());
      if (!gradient)
        continue;
      results.emplace_back(state.getTensorName().str(), gradient);
      if (state.getTensorName() == results.front().name) // a gradient has its parameter's name
        results.front().name += "_1";
    }
    setResults(gradients, results);
    eraseDeadOps(gradients);
    eraseUnusedArgument(gradients, "learning_rate");
  }
};

} // namespace
