// SPDX-License-Identifier: Apache-2.0
// --training-evaluate: the model as it is used after training.
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
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
    // One that the file brings is used as it is, but for training-only ops.
    auto own = getOperation().lookupSymbol<func::FuncOp>(function);
    func::FuncOp forward = own ? own : findFunction(getOperation(), "forward");
    if (!forward)
      return signalPassFailure();
    FailureOr<int64_t> count = own ? toEvaluationForm(own) : makeEvaluationForm(forward, function);
    if (failed(count))
      return signalPassFailure();
    replaced += *count;
  }
};

} // namespace
