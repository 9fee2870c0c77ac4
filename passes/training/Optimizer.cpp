// SPDX-License-Identifier: Apache-2.0
// --training-optimizer: one update a parameter with a gradient.
#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Autodiff/Schedule.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/training/Passes.h"

#include "llvm/ADT/StringSet.h"

#include <map>

namespace mpt {
#define GEN_PASS_DEF_OPTIMIZER
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

/// A tensor that an optimizer keeps for each parameter.
struct Slot {
  StringRef name;
  SmallVector<int64_t> shape;
};

static SmallVector<Slot> slotsOf(const OptimizerSpec &spec, ArrayRef<int64_t> shape) {
  auto like = [&](ArrayRef<StringRef> names) {
    return llvm::map_to_vector(names, [&](StringRef name) { return Slot{name, SmallVector<int64_t>(shape)}; });
  };
  switch (spec.kind) {
  case OptimizerKind::sgd:
    return spec.momentum == 0.0 ? SmallVector<Slot>() : like({"momentum"});
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
  case OptimizerKind::lamb:
    return like({"moment1", "moment2"});
  case OptimizerKind::adagrad:
    return like({"sum"});
  case OptimizerKind::rmsprop: {
    SmallVector<StringRef> names{"square"};
    if (spec.centered)
      names.push_back("mean");
    if (spec.momentum != 0.0)
      names.push_back("buffer");
    return like(names);
  }
  case OptimizerKind::lion:
    return like({"moment1"});
  case OptimizerKind::lars:
    return like({"momentum"});
  case OptimizerKind::adafactor: {
    SmallVector<Slot> slots;
    SmallVector<SmallVector<int64_t>> shapes = AdafactorOp::slotShapes(shape);
    for (auto [i, extents] : llvm::enumerate(shapes))
      slots.push_back({shapes.size() == 1 ? "square" : i == 0 ? "rows" : "columns", extents});
    return slots;
  }
  }
  llvm_unreachable("unknown optimizer");
}

/// Averages of gradients may be kept as narrow as parameters; sums of squares may not.
static bool isStorableNarrow(StringRef slot) { return slot == "momentum" || slot == "moment1"; }

/// Adam with epsilon beside the uncorrected second moment, and decay of the new parameter where it is decoupled.
static Operation *buildAdamHat(OpBuilder &builder, Location loc, const OptimizerSpec &spec, Value param, Value grad,
                               Value lr, Value step, ArrayRef<Value> slots) {
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  bool decoupled = spec.kind == OptimizerKind::adamw;
  if (!spec.correctsBias) // which step 0 says
    step = GraphBuilder(builder, loc).scalar(tensorType(step).getElementType(), 0.0);
  return AdamHatOp::create(builder, loc, param, grad, lr, step, slots[0], slots[1], number(spec.beta1),
                           number(spec.beta2), number(spec.epsilon), number(decoupled ? 0.0 : spec.weightDecay),
                           number(0.0), number(decoupled ? spec.weightDecay : 0.0));
}

/// The optimizer op: new parameter, then new optimizer state.
static Operation *buildUpdate(OpBuilder &builder, Location loc, const OptimizerSpec &spec, Value param, Value grad,
                              Value lr, Value step, ArrayRef<Value> slots) {
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  switch (spec.kind) {
  case OptimizerKind::sgd:
    return SGDOp::create(builder, loc, param, grad, lr, step, slots.empty() ? Value() : slots[0], number(spec.momentum),
                         number(spec.dampening), builder.getBoolAttr(spec.nesterov), number(spec.weightDecay));
  case OptimizerKind::adam:
  case OptimizerKind::adamw:
    if (spec.epsilonHat || !spec.correctsBias)
      return buildAdamHat(builder, loc, spec, param, grad, lr, step, slots);
    return AdamOp::create(builder, loc, param, grad, lr, step, slots[0], slots[1], number(spec.beta1),
                          number(spec.beta2), number(spec.epsilon), number(spec.weightDecay),
                          builder.getBoolAttr(spec.kind == OptimizerKind::adamw));
  case OptimizerKind::adagrad:
    return AdagradOp::create(builder, loc, param, grad, lr, step, slots[0], number(spec.lrDecay), number(spec.epsilon),
                             number(spec.weightDecay));
  case OptimizerKind::rmsprop:
    return RMSPropOp::create(builder, loc, param, grad, lr, slots, number(spec.alpha), number(spec.epsilon),
                             number(spec.momentum), number(spec.weightDecay), builder.getBoolAttr(spec.centered));
  case OptimizerKind::lion:
    return LionOp::create(builder, loc, param, grad, lr, slots[0], number(spec.beta1), number(spec.beta2),
                          number(spec.weightDecay));
  case OptimizerKind::lamb:
    return LAMBOp::create(builder, loc, param, grad, lr, step, slots[0], slots[1], number(spec.beta1),
                          number(spec.beta2), number(spec.epsilon), number(spec.weightDecay));
  case OptimizerKind::lars:
    return LARSOp::create(builder, loc, param, grad, lr, slots[0], number(spec.momentum), number(spec.trust),
                          number(spec.epsilon), number(spec.weightDecay));
  case OptimizerKind::adafactor:
    return AdafactorOp::create(builder, loc, param, grad, lr, step, slots, number(spec.decay), number(spec.epsilon1),
                               number(spec.epsilon2), number(spec.clip), number(spec.weightDecay));
  }
  llvm_unreachable("unknown optimizer");
}

namespace {

struct Optimizer : mpt::impl::OptimizerBase<Optimizer> {
  using OptimizerBase::OptimizerBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    SmallVector<func::FuncOp> steps = stepsOf(module);
    func::FuncOp step = steps.empty() ? findFunction(module, "step") : steps.front();
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

    for (func::FuncOp function : steps)
      if (failed(updateAll(function, steps.size() > 1)))
        return signalPassFailure();
    eraseUnusedSlots(module);
  }

private:
  /// Erases optimizer state that the file brings for an optimizer that is not used.
  static void eraseUnusedSlots(ModuleOp module) {
    llvm::StringSet<> used;
    module.walk([&](train::ReadOp op) { used.insert(op.getState()); });
    module.walk([&](train::WriteOp op) { used.insert(op.getState()); });
    for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>()))
      if (state.getRole() == train::Role::slot && state.getOf() && !used.contains(state.getSymName()))
        state.erase();
  }

  /// @step, or the steps of several algorithms.
  static SmallVector<func::FuncOp> stepsOf(ModuleOp module) {
    SmallVector<func::FuncOp> steps;
    if (auto step = module.lookupSymbol<func::FuncOp>("step"))
      steps.push_back(step);
    else
      for (auto function : module.getOps<func::FuncOp>())
        if (!function.isExternal() && !function.getOps<train::GradientOp>().empty())
          steps.push_back(function);
    return steps;
  }

  /// Each of several steps counts for itself.
  LogicalResult updateAll(func::FuncOp step, bool several) {
    SmallVector<train::GradientOp> gradients = llvm::to_vector(step.getOps<train::GradientOp>());
    OpBuilder builder(step.getContext());
    for (unsigned i = 0; i < step.getNumArguments(); ++i)
      if (nameOfArgument(step, i) == "learning_rate")
        return mlir::emitError(step.getArgument(i).getLoc())
               << "expected no input named 'learning_rate', which the optimizer adds: rename it [mpt-name-taken]";
    lr = addArgument(step, "learning_rate", RankedTensorType::get({}, builder.getF32Type()));
    setArgAttr<MPTDialect::DefaultAttrHelper>(step, step.getNumArguments() - 1,
                                              builder.getF64FloatAttr(groups.front().lr));
    rates.clear();
    std::string counter = train::TrainDialect::kSteps.str();
    if (failed(countSteps(step, several ? counter + "." + step.getSymName().str() : counter)))
      return failure();
    // Which needs every gradient first.
    OpBuilder end(step.getBody().front().getTerminator());
    Value coefficient = clipNorm > 0.0 ? clipCoefficient(step, end, gradients, clipNorm) : Value();
    for (train::GradientOp gradient : gradients)
      if (failed(update(step, gradient, coefficient)))
        return failure();
    return success();
  }

  /// The optimizer for the manifest: kind and default learning rate (of the first of several), and the text they came
  /// from.
  DictionaryAttr describe(Builder builder) {
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("kind", builder.getStringAttr(stringifyOptimizerKind(groups.front().kind))),
         builder.getNamedAttr("learning_rate", builder.getF64FloatAttr(groups.front().lr)),
         builder.getNamedAttr("spec", builder.getStringAttr(optimizer))});
  }

  /// Adds the counter; `count` is the number of this step, from 1.
  LogicalResult countSteps(func::FuncOp step, StringRef name) {
    OpBuilder builder = OpBuilder::atBlockBegin(&step.getBody().front());
    auto type = RankedTensorType::get({}, builder.getI64Type());
    auto state = addState(getOperation(), train::Role::counter, name, type, 0.0);
    if (!state)
      return failure();
    GraphBuilder b(builder, state.getLoc());
    Value old = train::ReadOp::create(builder, b.loc, type, name);
    count = b.add(old, b.scalar(type.getElementType(), 1.0));
    train::WriteOp::create(builder, b.loc, name, count, Value());
    return success();
  }

  /// Right after the gradient, so that its memory is free again early; at the end when it is clipped.
  LogicalResult update(func::FuncOp step, train::GradientOp gradient, Value coefficient) {
    OpBuilder builder(gradient->getBlock(), std::next(gradient->getIterator()));
    if (coefficient)
      builder.setInsertionPoint(step.getBody().front().getTerminator());
    GraphBuilder b(builder, gradient.getLoc());
    StringRef name = gradient.getParameter();
    Value parameter = readState(step, name, gradient.getType()), grad = gradient.getResult();
    const OptimizerSpec *group = optimizerFor(groups, train::TrainDialect::tensorName(name));
    if (!group)
      return mlir::emitError(gradient.getLoc())
             << "expected an optimizer for parameter '" << train::TrainDialect::tensorName(name)
             << "': its name matches no params; give one without params, or freeze it [mpt-left-out]";
    const OptimizerSpec &spec = *group;
    RankedTensorType type = tensorType(parameter);
    Type wide = wideType(type.getElementType());
    if (coefficient)
      grad = clippedGradient(builder, gradient, coefficient);

    SmallVector<Value> slots;
    SmallVector<std::string> targets{name.str()};
    for (const Slot &slot : slotsOf(spec, type.getShape())) {
      targets.push_back((name + "." + slot.name).str());
      auto state = addState(getOperation(), train::Role::slot, targets.back(), RankedTensorType::get(slot.shape, wide),
                            0.0, name);
      if (!state)
        return failure();
      if (isStorableNarrow(slot.name))
        setAttr<MPTDialect::StorableAttrHelper>(state);
      slots.push_back(train::ReadOp::create(builder, b.loc, state.getType(), targets.back()));
    }
    Operation *op = buildUpdate(builder, b.loc, spec, parameter, grad, rateOf(spec), count, slots);
    for (auto [target, value] : llvm::zip_equal(targets, op->getResults()))
      train::WriteOp::create(builder, b.loc, target, value, Value());
    ++updates;
    return success();
  }

  /// The step's rate times the group's share of the first group's rate: the caller's rate serves all groups alike.
  Value rateOf(const OptimizerSpec &spec) {
    double share = spec.lr == groups.front().lr ? 1.0 : spec.lr / groups.front().lr;
    Value &rate = rates[{share, spec.schedule.isConstant() ? nullptr : &spec}];
    if (rate)
      return rate;
    OpBuilder builder = OpBuilder::atBlockBegin(lr.getParentBlock());
    GraphBuilder b(builder, lr.getLoc());
    rate = share == 1.0 ? lr : b.mul(lr, share);
    if (!spec.schedule.isConstant()) {
      builder.setInsertionPointAfterValue(count);
      Value scheduled = b.mul(b.cast(rate, builder.getF64Type()), buildSchedule(b, spec.schedule, count));
      rate = b.cast(scheduled, builder.getF32Type());
    }
    return rate;
  }

  SmallVector<OptimizerSpec, 1> groups;
  std::map<std::pair<double, const OptimizerSpec *>, Value> rates; ///< by share, and group where it has a schedule
  Value lr, count;
};

} // namespace
