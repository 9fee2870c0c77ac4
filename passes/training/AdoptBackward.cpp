// SPDX-License-Identifier: Apache-2.0
// --training-adopt-backward: gradients and new values that a joint graph of a file brings become the step's.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/Seed.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Autodiff/WrittenUpdates.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_ADOPTBACKWARD
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// A result with the role of giving a state something.
struct Given {
  FlatSymbolRefAttr state;
  Value value;
};

struct AdoptBackward : mpt::impl::AdoptBackwardBase<AdoptBackward> {
  using AdoptBackwardBase::AdoptBackwardBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto found = module->getAttrOfType<DictionaryAttr>(mpt::onnx::kTrainingRoles);
    if (!found)
      return;
    func::FuncOp forward = findFunction(module, "forward");
    if (!forward)
      return signalPassFailure();
    training = found;
    module->removeAttr(mpt::onnx::kTrainingRoles);
    auto backward = training.getAs<StringAttr>("backward");
    bool isDerived = backward && backward.getValue() == "derived";
    func::FuncOp step = isDerived ? forward : cloneFunction(forward, "step");
    if ((!isDerived && failed(widenParameters(module))) || failed(adopt(step, isDerived)))
      return signalPassFailure();
    if (isDerived)
      return;
    if (!hasSeeds(step))
      stateBackward(step);
    keepLoss(forward);
  }

private:
  FlatSymbolRefAttr roleOf(StringRef kind, StringRef result) {
    auto map = training.getAs<DictionaryAttr>(kind);
    return map ? map.getAs<FlatSymbolRefAttr>(result) : FlatSymbolRefAttr();
  }
  bool hasRole(StringRef result) { return roleOf("gradients", result) || roleOf("next", result); }
  train::StateOp stateOf(FlatSymbolRefAttr name) { return getOperation().lookupSymbol<train::StateOp>(name.getAttr()); }

  /// The loss as an FP32 scalar, or wider, then results without a role.
  FailureOr<SmallVector<NamedValue>> plainResults(func::FuncOp function) {
    auto name = training.getAs<StringAttr>("loss");
    SmallVector<NamedValue> rest;
    Value loss;
    for (NamedValue &result : namedResults(function)) {
      if (name && result.name == name.getValue())
        loss = result.value;
      else if (!hasRole(result.name))
        rest.push_back(result);
    }
    if (!loss || tensorType(loss).getNumElements() != 1)
      return function.emitError() << "expected a scalar loss among the results of a graph with gradients";
    OpBuilder builder(function.getBody().front().getTerminator());
    GraphBuilder b(builder, loss.getLoc());
    rest.insert(rest.begin(), {train::Role::loss, b.widen(b.reshape(loss, {}))});
    return rest;
  }

  void keepLoss(func::FuncOp forward) {
    auto results = plainResults(forward);
    if (failed(results))
      return signalPassFailure();
    setResults(forward, *results);
    eraseDeadOps(forward);
  }

  /// A narrow value for an FP32 state in the state's type; its other readers read that.
  Value widened(Value value, RankedTensorType state) {
    RankedTensorType type = tensorType(value);
    if (!state.getElementType().isF32() || !isa<FloatType>(type.getElementType()) ||
        type.getElementTypeBitWidth() >= 32 || type.getShape() != state.getShape())
      return value;
    OpBuilder builder(&getContext());
    builder.setInsertionPointAfterValue(value);
    GraphBuilder b(builder, value.getLoc());
    Value wide = b.widen(value);
    value.replaceAllUsesExcept(b.cast(wide, type.getElementType()), wide.getDefiningOp());
    return wide;
  }

  LogicalResult collect(func::FuncOp step, StringRef kind, SmallVectorImpl<Given> &list) {
    for (NamedValue &result : namedResults(step)) {
      FlatSymbolRefAttr name = roleOf(kind, result.name);
      train::StateOp state = name ? stateOf(name) : train::StateOp();
      if (!state) // an initializer that nothing reads is no state
        continue;
      result.value = widened(result.value, cast<RankedTensorType>(state.getType()));
      if (state.getType() != result.value.getType())
        return mlir::emitError(result.value.getLoc())
               << "expected output '" << result.name << "' to have the type of '" << name.getValue() << "', "
               << state.getType() << ", got " << result.value.getType();
      if (kind == "next" || !state.getFrozen())
        list.push_back({name, result.value});
    }
    return success();
  }

  LogicalResult adopt(func::FuncOp step, bool isDerived) {
    SmallVector<Given> grads, next;
    auto results = plainResults(step);
    if (failed(results) || failed(collect(step, "gradients", grads)) || failed(collect(step, "next", next)))
      return failure();
    mergeReads(step);
    find(results->front().value, next, grads, step);
    if (grads.empty() && !isDerived && !update)
      return step.emitError() << "expected gradients among the outputs, which another optimizer than the file's own "
                                 "needs, got new values alone; name them: --gradient PARAMETER=OUTPUT";
    // A gradient may be a value of the forward pass, such as an input: only updates take the marked one.
    SmallVector<Value> kept = llvm::map_to_vector(grads, [](const Given &given) { return given.value; });
    for (const NamedValue &result : *results)
      kept.push_back(result.value);
    DenseSet<Operation *> others = sliceOf(kept);
    SmallVector<Value> fixed{results->front().value};
    for (Given &gradient : grads)
      mark(gradient, others);
    for (const Given &value : next)
      write(step, value, isDerived, fixed);
    setResults(step, isDerived ? ArrayRef<NamedValue>(*results) : ArrayRef<NamedValue>(*results).take_front());
    if (isDerived) {
      for (Operation *gradient : marked) {
        gradient->replaceAllUsesWith(gradient->getOperands());
        gradient->erase();
      }
      eraseDeadOps(step);
      return success();
    }
    advanceGenerators(step);
    eraseAllButGradients(step);
    if (auto rate = training.getAs<StringAttr>("learning_rate"); rate && !update)
      eraseUnusedArgument(step, rate.getValue());
    auto seed = training.getAs<StringAttr>("seed"); // as the user says
    if (seed && !hasSeeds(step))
      return step.emitError() << "--seed: expected a value that gradients are computed from, got '" << seed.getValue()
                              << "', which none needs";
    if (grads.empty())
      return success();
    Operation *culprit = markSeeds(step, fixed);
    if (culprit && seed)
      return mlir::emitError(culprit->getLoc())
             << "--seed: expected the value that every gradient is a multiple of, and nothing else, got '"
             << seed.getValue() << "': from here on the gradient" << namesBehind(culprit)
             << " is none; name another value, or leave --seed out and train without a loss scale "
                "[mpt-lost-loss-scale]";
    if (culprit)
      mlir::emitWarning(culprit->getLoc())
          << "no seed found: from here on the gradient" << namesBehind(culprit)
          << " of the file is no multiple of one value, so that no loss scale can be used; name the value that its "
             "backward pass starts from: --seed NAME";
    return success();
  }

  /// Adds the gradients of parameters that the file updates without naming the gradients.
  void find(Value loss, ArrayRef<Given> next, SmallVectorImpl<Given> &grads, func::FuncOp step) {
    SmallVector<NewValue> news, parameters;
    for (const Given &value : next) {
      train::StateOp state = stateOf(value.state);
      news.push_back({state, value.value});
      bool known = llvm::any_of(grads, [&](const Given &given) { return given.state == value.state; });
      if (!known && state.getRole() == train::Role::parameter && !state.getFrozen())
        parameters.push_back(news.back());
    }
    SmallVector<Value> given = llvm::map_to_vector(grads, [](const Given &given) { return given.value; });
    for (auto [parameter, value] : llvm::zip_equal(parameters, gradientsOfUpdates(step, loss, parameters, news, given)))
      if (value && (value = widened(value, cast<RankedTensorType>(parameter.state.getType()))).getType() ==
                       parameter.state.getType())
        grads.push_back({FlatSymbolRefAttr::get(parameter.state.getSymNameAttr()), value});
  }

  static bool hasSeeds(func::FuncOp step) {
    return llvm::any_of(step.getBody().front(), [](Operation &op) { return hasAttr<MPTDialect::SeedAttrHelper>(&op); });
  }

  /// Without a seed to follow, contractions that no result needs state that they are of the backward pass.
  static void stateBackward(func::FuncOp step) {
    Block &body = step.getBody().front();
    DenseSet<Operation *> forward = sliceOf(llvm::to_vector(body.getTerminator()->getOperands()));
    for (Operation &op : body)
      if (isContraction(&op) && !forward.contains(&op))
        statePart(&op, TrainingPart::backward);
  }

  /// Of the first parameter whose gradient is computed by `culprit`.
  std::string namesBehind(Operation *culprit) {
    for (auto gradient : culprit->getParentOfType<func::FuncOp>().getOps<train::GradientOp>())
      if (gradient == culprit || sliceOf({gradient.getGradient()}).contains(culprit))
        return (" of '" + gradient.getParameter() + "'").str();
    return "";
  }

  /// The ops that `work` is computed by.
  static DenseSet<Operation *> sliceOf(SmallVector<Value> work) {
    DenseSet<Operation *> slice;
    while (!work.empty())
      if (Operation *op = work.pop_back_val().getDefiningOp(); op && slice.insert(op).second)
        llvm::append_range(work, op->getOperands());
    return slice;
  }

  /// The gradient is marked as soon as it is complete; updates take the marked one, the `others` the value itself.
  void mark(Given &given, const DenseSet<Operation *> &others) {
    OpBuilder builder(given.value.getContext());
    builder.setInsertionPointAfterValue(given.value);
    Location loc = NameLoc::get(given.state.getAttr());
    auto gradient = train::GradientOp::create(builder, loc, given.state, given.value);
    given.value.replaceUsesWithIf(gradient.getResult(), [&](OpOperand &use) {
      Operation *user = use.getOwner();
      return user != gradient && !others.contains(user) && !isa<train::GradientOp>(user) &&
             !user->hasTrait<OpTrait::IsTerminator>();
    });
    marked.insert(gradient);
    markedOf.try_emplace(given.value, gradient);
    ++gradients;
  }

  /// True where `value` is computed from a marked gradient.
  bool isUpdate(Value value) {
    SmallVector<Value> work{value};
    DenseSet<Operation *> seen;
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (!op || !seen.insert(op).second)
        continue;
      if (marked.contains(op))
        return true;
      llvm::append_range(work, op->getOperands());
    }
    return false;
  }

  /// Writes a new value, unless another optimizer makes it of gradients. A value that is no update is a statistic,
  /// which must not carry a scale.
  void write(func::FuncOp step, const Given &given, bool isDerived, SmallVectorImpl<Value> &fixed) {
    train::StateOp state = stateOf(given.state);
    // A state may keep a gradient as it is.
    Value value = markedOf.contains(given.value) ? markedOf.lookup(given.value) : given.value;
    bool updates = isUpdate(value) || state.getRole() == train::Role::parameter;
    if (updates && (isDerived || !update))
      return;
    if (updates && state.getRole() == train::Role::statistic)
      state.setRoleAttr(train::RoleAttr::get(&getContext(), train::Role::slot));
    if (!updates)
      fixed.push_back(value);
    OpBuilder builder(step.getBody().front().getTerminator());
    train::WriteOp::create(builder, state.getLoc(), given.state, value, Value());
    ++writes;
  }

  DictionaryAttr training;
  DenseSet<Operation *> marked;
  DenseMap<Value, Value> markedOf;
};

} // namespace
