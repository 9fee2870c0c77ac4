// SPDX-License-Identifier: Apache-2.0
// --training-optimizer: one update a parameter with a gradient.
#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/training/Passes.h"

#include <map>

namespace mpt {
#define GEN_PASS_DEF_OPTIMIZER
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

/// Names of the slots that an optimizer keeps for each parameter.
static SmallVector<StringRef> slotsOf(const OptimizerSpec &spec) {
  switch (spec.kind) {
  case OptimizerKind::sgd:
    return spec.momentum == 0.0 ? SmallVector<StringRef>() : SmallVector<StringRef>{"momentum"};
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
    return {"moment1", "moment2"};
  case OptimizerKind::adagrad:
    return {"sum"};
  }
  llvm_unreachable("unknown optimizer");
}

/// Slots that hold averages of gradients may be kept as narrow as parameters; sums of squares may not.
static bool isStorableNarrow(StringRef slot) { return slot == "momentum" || slot == "moment1"; }

/// The optimizer op: new parameter, then new slots.
static Operation *buildUpdate(OpBuilder &builder, Location loc, const OptimizerSpec &spec, Value param, Value grad,
                              Value lr, Value step, ArrayRef<Value> slots) {
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  switch (spec.kind) {
  case OptimizerKind::sgd:
    return SGDOp::create(builder, loc, param, grad, lr, step, slots.empty() ? Value() : slots[0], number(spec.momentum),
                         number(spec.dampening), builder.getBoolAttr(spec.nesterov), number(spec.weightDecay));
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
    return AdamOp::create(builder, loc, param, grad, lr, step, slots[0], slots[1], number(spec.beta1),
                          number(spec.beta2), number(spec.epsilon), number(spec.weightDecay),
                          builder.getBoolAttr(spec.kind == OptimizerKind::adamw));
  case OptimizerKind::adagrad:
    return AdagradOp::create(builder, loc, param, grad, lr, step, slots[0], number(spec.lrDecay), number(spec.epsilon),
                             number(spec.weightDecay));
  }
  llvm_unreachable("unknown optimizer");
}

namespace {

struct Optimizer : mpt::impl::OptimizerBase<Optimizer> {
  using OptimizerBase::OptimizerBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    func::FuncOp step = findFunction(module, "step");
    if (!step)
      return signalPassFailure();
    auto parsed = parseOptimizerSpecs(optimizer);
    if (!parsed) {
      step.emitError() << "optimizer: " << llvm::toString(parsed.takeError());
      return signalPassFailure();
    }
    if (!(clipNorm >= 0.0)) {
      step.emitError() << "expected a clip-norm that is not negative, got " << clipNorm.getValue();
      return signalPassFailure();
    }
    groups = *parsed;
    for (const OptimizerSpec &group : groups)
      if (group.lr != groups.front().lr && groups.front().lr == 0.0) {
        step.emitError()
            << "expected a learning rate above 0 in the first optimizer, which those of the others are relative to";
        return signalPassFailure();
      }
    OpBuilder builder(step.getBody().front().getTerminator());
    setAttr<MPTDialect::OptimizerAttrHelper>(module, describe(builder));

    SmallVector<train::GradientOp> gradients = llvm::to_vector(step.getOps<train::GradientOp>());
    lr = addArgument(step, "learning_rate", RankedTensorType::get({}, builder.getF32Type()));
    setArgAttr<MPTDialect::DefaultAttrHelper>(step, step.getNumArguments() - 1,
                                              builder.getF64FloatAttr(groups.front().lr));
    if (failed(countSteps(step)))
      return signalPassFailure();
    Value coefficient = clipNorm > 0.0 ? clip(step, gradients) : Value();
    for (train::GradientOp gradient : gradients)
      if (failed(update(step, gradient, coefficient)))
        return signalPassFailure();
  }

private:
  /// The optimizer for the manifest: kind and default learning rate (of the first of several), and the text they came
  /// from.
  DictionaryAttr describe(Builder builder) {
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("kind", builder.getStringAttr(stringifyOptimizerKind(groups.front().kind))),
         builder.getNamedAttr("learning_rate", builder.getF64FloatAttr(groups.front().lr)),
         builder.getNamedAttr("spec", builder.getStringAttr(optimizer))});
  }

  /// Adds the counter; `count` is the number of this step, from 1.
  LogicalResult countSteps(func::FuncOp step) {
    OpBuilder builder = OpBuilder::atBlockBegin(&step.getBody().front());
    auto type = RankedTensorType::get({}, builder.getI64Type());
    auto state = addState(getOperation(), train::Role::counter, train::TrainDialect::kSteps, type, 0.0);
    if (!state)
      return failure();
    GraphBuilder b(builder, state.getLoc());
    Value old = train::ReadOp::create(builder, b.loc, type, train::TrainDialect::kSteps);
    count = b.add(old, b.scalar(type.getElementType(), 1.0));
    train::WriteOp::create(builder, b.loc, train::TrainDialect::kSteps, count, Value());
    return success();
  }

  /// min(1, clip-norm / (norm + 1e-6)), which needs every gradient first.
  Value clip(func::FuncOp step, ArrayRef<train::GradientOp> gradients) {
    OpBuilder builder(step.getBody().front().getTerminator());
    GraphBuilder b(builder, NameLoc::get(builder.getStringAttr("grad_norm")));
    auto type = RankedTensorType::get({}, builder.getF32Type());
    SmallVector<Value> values =
        llvm::map_to_vector(gradients, [](train::GradientOp op) -> Value { return op.getResult(); });
    Value norm = train::GlobalNormOp::create(builder, b.loc, type, values);
    SmallVector<NamedValue> results = namedResults(step);
    results.emplace_back("grad_norm", norm);
    setResults(step, results);
    Value ratio = b.div(b.splat(type, clipNorm), b.add(norm, 1e-6));
    return b.make<MinOp>(ratio, b.splat(type, 1.0));
  }

  /// Right after the gradient, so that its memory is free again early; at the end when it is clipped.
  LogicalResult update(func::FuncOp step, train::GradientOp gradient, Value coefficient) {
    OpBuilder builder(gradient->getBlock(), std::next(gradient->getIterator()));
    if (coefficient)
      builder.setInsertionPoint(step.getBody().front().getTerminator());
    GraphBuilder b(builder, gradient.getLoc());
    StringRef name = gradient.getParameter();
    Value parameter = readState(step, name, gradient.getType()), grad = gradient.getResult();
    const OptimizerSpec *group = optimizerFor(groups, name);
    if (!group)
      return mlir::emitError(gradient.getLoc())
             << "expected an optimizer for parameter '" << name
             << "': its name matches no params; give one without params, or freeze it";
    const OptimizerSpec &spec = *group;
    RankedTensorType type = tensorType(parameter);
    Type wide = wideType(type.getElementType());
    if (coefficient)
      grad = b.mul(b.widen(grad), b.broadcast(b.cast(coefficient, wide), type.getShape(), {}));

    SmallVector<Value> slots;
    SmallVector<std::string> targets{name.str()};
    for (StringRef slot : slotsOf(spec)) {
      targets.push_back((name + "." + slot).str());
      auto state = addState(getOperation(), train::Role::slot, targets.back(),
                            RankedTensorType::get(type.getShape(), wide), 0.0, name);
      if (!state)
        return failure();
      if (isStorableNarrow(slot))
        setAttr<MPTDialect::StorableAttrHelper>(state);
      slots.push_back(train::ReadOp::create(builder, b.loc, state.getType(), targets.back()));
    }
    Operation *op = buildUpdate(builder, b.loc, spec, parameter, grad, rateOf(spec), count, slots);
    for (auto [target, value] : llvm::zip_equal(targets, op->getResults()))
      train::WriteOp::create(builder, b.loc, target, value, Value());
    ++updates;
    return success();
  }

  /// The step's rate times the group's share of the first group's rate: schedules serve all groups alike.
  Value rateOf(const OptimizerSpec &spec) {
    double share = spec.lr == groups.front().lr ? 1.0 : spec.lr / groups.front().lr;
    Value &rate = rates[share];
    if (!rate) {
      OpBuilder builder = OpBuilder::atBlockBegin(lr.getParentBlock());
      rate = share == 1.0 ? lr : GraphBuilder(builder, lr.getLoc()).mul(lr, share);
    }
    return rate;
  }

  SmallVector<OptimizerSpec, 1> groups;
  std::map<double, Value> rates; ///< by share
  Value lr, count;
};

} // namespace
