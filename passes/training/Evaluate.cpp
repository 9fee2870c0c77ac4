// SPDX-License-Identifier: Apache-2.0
// --training-evaluate: the model as it is used after training.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_EVALUATE
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Evaluate : mpt::impl::EvaluateBase<Evaluate> {
  using EvaluateBase::EvaluateBase;

  void runOnOperation() override {
    func::FuncOp forward = findFunction(getOperation(), "forward");
    if (!forward)
      return signalPassFailure();
    func::FuncOp evaluate = cloneFunction(forward, function);
    for (auto write : llvm::make_early_inc_range(evaluate.getOps<train::WriteOp>()))
      write.erase();
    for (Operation &op : llvm::make_early_inc_range(evaluate.getBody().front())) {
      auto form = dyn_cast<EvaluationForm>(op);
      if (!form)
        continue;
      OpBuilder builder(&op);
      auto values = form.evaluationForm(builder);
      if (failed(values))
        return signalPassFailure();
      if (ValueRange(*values) == ValueRange(op.getResults()))
        continue;
      op.replaceAllUsesWith(*values);
      op.erase();
      ++replaced;
    }
    eraseDeadOps(evaluate);
  }
};

} // namespace
