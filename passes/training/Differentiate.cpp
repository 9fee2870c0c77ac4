// SPDX-License-Identifier: Apache-2.0
// --training-differentiate: @forward becomes @step.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TrainingOps.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Differentiate : mpt::impl::DifferentiateBase<Differentiate> {
  void runOnOperation() override {
    func::FuncOp step = findFunction(getOperation(), "forward");
    if (step && getOperation().lookupSymbol("step")) { // the file brought its own backward pass
      step.erase();
      return;
    }
    if (!step || failed(checkLoss(step)) || failed(widenParameters(getOperation())))
      return signalPassFailure();
    step.setName("step");
    mergeReads(step);
    advanceGenerators(step);

    SmallVector<Value> parameters;
    for (auto read : step.getOps<train::ReadOp>()) {
      train::StateOp state = stateOf(read);
      if (state && state.getRole() == train::Role::parameter && !state.getFrozen() &&
          isa<FloatType>(tensorType(read).getElementType()))
        parameters.push_back(read);
    }
    Block &block = step.getBody().front();
    int64_t before = block.getOperations().size();
    OpBuilder builder(block.getTerminator());
    auto values =
        differentiate(step, lossesOf(step), parameters, builder, [&](OpBuilder &builder, Value read, Value gradient) {
          auto parameter = read.getDefiningOp<train::ReadOp>();
          train::GradientOp::create(builder, read.getLoc(), parameter.getState(), gradient);
          ++gradients;
        });
    if (failed(values))
      return signalPassFailure();
    for (auto [read, gradient] : llvm::zip_equal(parameters, *values))
      if (!gradient)
        mlir::emitWarning(read.getLoc()) << "the loss does not depend on parameter '"
                                         << train::TrainDialect::tensorName(
                                                read.getDefiningOp<train::ReadOp>().getState())
                                         << "': it is not trained";
    if (parameters.empty())
      step.emitWarning()
          << "expected parameters to train, found none: the step changes nothing; float initializers are "
             "parameters where --freeze does not name them, and --train=REGEX names others";
    // Later passes see the values, as if nothing had been stated of their gradients.
    for (auto op : llvm::make_early_inc_range(step.getOps<CustomGradientOp>())) {
      op.replaceAllUsesWith(op.getValues());
      op.erase();
    }
    backwardOps += block.getOperations().size() - before;
    setResults(step, namedResults(step).front());
    eraseAllButGradients(step);
  }

private:
  static train::StateOp stateOf(train::ReadOp read) {
    return SymbolTable::lookupNearestSymbolFrom<train::StateOp>(read, read.getStateAttr());
  }

  /// The sum, or each of several losses.
  static SmallVector<LossTerm> lossesOf(func::FuncOp step) {
    SmallVector<LossTerm> losses;
    SmallVector<NamedValue> results = namedResults(step);
    for (auto [i, result] : llvm::enumerate(results))
      if (auto weight = getResultAttr<MPTDialect::WeightAttrHelper>(step, i))
        losses.push_back({StringRef(result.name).drop_front(StringRef("loss_").size()).str(), result.value,
                          weight.getValueAsDouble()});
    if (losses.empty())
      losses.push_back({"", results.front().value, 1.0});
    return losses;
  }

  static LogicalResult checkLoss(func::FuncOp step) {
    SmallVector<NamedValue> results = namedResults(step);
    auto type = results.empty() ? RankedTensorType() : dyn_cast<RankedTensorType>(results.front().value.getType());
    if (!type || type.getRank() != 0 || !isa<FloatType>(type.getElementType()) ||
        results.front().role != train::Role::loss)
      return step.emitError() << "expected @forward to return a scalar float of role loss first: run --training-loss";
    return success();
  }
};

} // namespace
