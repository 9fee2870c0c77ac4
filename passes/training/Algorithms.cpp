// SPDX-License-Identifier: Apache-2.0
// --training-algorithms: the algorithms of a file become training steps.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/Requests.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/OptimizerUpdate.h"
#include "passes/training/Passes.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"

namespace mpt {
#define GEN_PASS_DEF_ALGORITHMS
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Algorithms : mpt::impl::AlgorithmsBase<Algorithms> {
  using AlgorithmsBase::AlgorithmsBase;

  void runOnOperation() override {
    forward = findFunction(getOperation(), "forward");
    SmallVector<func::FuncOp> algorithms;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (function.getSymName().starts_with("algorithm."))
        algorithms.push_back(function);
    if (!forward || algorithms.empty()) {
      getOperation().emitError() << "expected @forward and an algorithm, @algorithm.0";
      return signalPassFailure();
    }
    for (func::FuncOp function : algorithms)
      if (failed(makeStep(function, algorithms.size() == 1)))
        return signalPassFailure();
    if (auto initialize = getOperation().lookupSymbol<func::FuncOp>("initialize")) {
      removeAttr<MPTDialect::NameAttrHelper>(initialize);
      advanceGenerators(initialize);
    }
    if (failed(makeEvaluationForm(forward, lossOfForward.empty() ? "predict" : "evaluate")))
      return signalPassFailure();
    forward.erase();
    if (defaultRate)
      setAttr<MPTDialect::OptimizerAttrHelper>(getOperation(), describe());
    dropUnused();
  }

private:
  LogicalResult makeStep(func::FuncOp function, bool alone) {
    auto named = getAttr<MPTDialect::NameAttrHelper>(function);
    std::string name = alone ? "step" : named ? named.getValue().str() : function.getSymName().str();
    mergeReads(function);
    advanceGenerators(function);
    FailureOr<SmallVector<Value>> losses = answerRequests(function, alone ? StringRef() : StringRef(name));
    if (failed(losses))
      return failure();
    nameResults(function, *losses);
    dropWrites(function);
    if (updates) {
      takeRates(function);
      if (clipNorm > 0.0)
        clip(function);
    }
    if (getOperation().lookupSymbol(name))
      return function.emitError() << "expected no function @" << name << " beside the algorithm of this name";
    function.setSymName(name);
    removeAttr<MPTDialect::NameAttrHelper>(function);
    // Another optimizer takes the gradients after this pass.
    if (updates)
      eraseDeadOps(function);
    else
      eraseAllButGradients(function);
    ++steps;
    return success();
  }

  /// The derivative of a tensor is the derivative of its sum.
  static Value asScalar(func::FuncOp function, Value loss) {
    OpBuilder builder(function.getBody().front().getTerminator());
    GraphBuilder b(builder, loss.getLoc());
    bool isOne = tensorType(loss).getNumElements() == 1;
    return isOne ? b.widen(b.reshape(loss, {})) : b.sum(b.widen(loss), axisRange(0, tensorType(loss).getRank()));
  }

  /// The losses come first; then the algorithm's results beside the model's own.
  void nameResults(func::FuncOp function, ArrayRef<Value> losses) {
    llvm::StringSet<> ofModel;
    for (const NamedValue &result : namedResults(forward))
      ofModel.insert(result.name);
    SmallVector<NamedValue> results;
    for (Value loss : llvm::SetVector<Value>(losses.begin(), losses.end())) {
      if (results.empty())
        results.emplace_back(train::Role::loss, asScalar(function, loss));
      else
        results.emplace_back("loss_" + std::to_string(results.size() + 1), asScalar(function, loss));
    }
    for (const NamedValue &result : namedResults(function)) {
      bool isLoss = llvm::is_contained(losses, result.value);
      if (isLoss && ofModel.contains(result.name) && result.value == losses.front())
        nameLoss(result.name);
      if (!isLoss && !ofModel.contains(result.name))
        results.push_back(result);
    }
    setResults(function, results);
  }

  /// Result `name` of the model is the loss of the first algorithm.
  void nameLoss(StringRef name) {
    if (!lossOfForward.empty())
      return;
    lossOfForward = name.str();
    SmallVector<NamedValue> results = namedResults(forward);
    auto found = llvm::find_if(results, [&](const NamedValue &result) { return result.name == name; });
    Value loss = found->value;
    results.erase(found);
    results.insert(results.begin(), {train::Role::loss, asScalar(forward, loss)});
    setResults(forward, results);
  }

  /// Frozen parameters stay; without the file's updates only states that the forward pass carries on do not.
  void dropWrites(func::FuncOp function) {
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>())) {
      auto state = getOperation().lookupSymbol<train::StateOp>(write.getState());
      auto owner = state.getOf() ? getOperation().lookupSymbol<train::StateOp>(*state.getOf()) : state;
      bool carriedOn = state.getRole() == train::Role::statistic || state.getRole() == train::Role::rng;
      if (updates ? owner && owner.getFrozen() : !carriedOn)
        write.erase();
    }
  }

  /// Constant learning rates become the input "learning_rate", others of the file keep their ratio to the first.
  void takeRates(func::FuncOp function) {
    SmallVector<std::pair<OpOperand *, double>> rates;
    for (Operation &op : function.getBody().front())
      if (auto update = dyn_cast<OptimizerUpdate>(op))
        if (auto constant = update.getRateMutable().get().getDefiningOp<ConstantOp>())
          if (auto value = dyn_cast<DenseFPElementsAttr>(constant.getValue()))
            rates.emplace_back(&update.getRateMutable(), (*value.begin()).convertToDouble());
    if (rates.empty())
      return;
    if (!defaultRate)
      defaultRate = rates.front().second;
    if (*defaultRate == 0.0)
      return;
    OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
    Value rate = addArgument(function, "learning_rate", RankedTensorType::get({}, builder.getF32Type()));
    setArgAttr<MPTDialect::DefaultAttrHelper>(function, function.getNumArguments() - 1,
                                              builder.getF64FloatAttr(*defaultRate));
    for (auto [operand, value] : rates) {
      GraphBuilder b(builder, operand->getOwner()->getLoc());
      Value own = b.cast(rate, tensorType(operand->get()).getElementType());
      operand->set(value == *defaultRate ? own : b.mul(own, value / *defaultRate));
    }
  }

  /// Everything that reads a gradient reads the clipped one.
  void clip(func::FuncOp function) {
    SmallVector<train::GradientOp> gradients = llvm::to_vector(function.getOps<train::GradientOp>());
    if (gradients.empty())
      return;
    OpBuilder builder(function.getContext());
    builder.setInsertionPointAfter(gradients.back());
    SmallVector<SmallVector<OpOperand *>> uses;
    for (train::GradientOp gradient : gradients) {
      uses.emplace_back();
      for (OpOperand &use : gradient.getResult().getUses())
        uses.back().push_back(&use);
    }
    Value coefficient = clipCoefficient(function, builder, gradients, clipNorm);
    for (auto [gradient, readers] : llvm::zip_equal(gradients, uses)) {
      Value clipped = clippedGradient(builder, gradient, coefficient);
      for (OpOperand *use : readers)
        use->set(clipped);
    }
  }

  DictionaryAttr describe() {
    Builder builder(&getContext());
    return builder.getDictionaryAttr({builder.getNamedAttr("kind", builder.getStringAttr("file")),
                                      builder.getNamedAttr("learning_rate", builder.getF64FloatAttr(*defaultRate))});
  }

  /// Counters and optimizer state that no function names any more.
  void dropUnused() {
    for (auto state : llvm::make_early_inc_range(getOperation().getOps<train::StateOp>()))
      if ((state.getRole() == train::Role::slot || state.getRole() == train::Role::counter) &&
          SymbolTable::symbolKnownUseEmpty(state, getOperation()))
        state.erase();
  }

  func::FuncOp forward;
  std::string lossOfForward;         ///< result of @forward; empty where the algorithm computes the loss
  std::optional<double> defaultRate; ///< of the first optimizer
};

} // namespace
