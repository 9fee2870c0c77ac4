// precision-loss-scaling: scale, unscale, finite check, conditional commit, next scale.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Precision/Attributes.h"
#include "mpt/Precision/Settings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_LOSSSCALING
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
constexpr StringLiteral kScale = "mpt.loss_scale", kGoodSteps = "mpt.good_steps", kHysteresis = "mpt.hysteresis",
                        kSteps = "mpt.scale_steps";

/// A skipped step still draws new random numbers, and always moves the scale. Sums over micro-steps take up what is not
/// finite, so that the step which reads them is skipped, and are emptied after it: a mean without one of them is wrong.
bool commitsAlways(train::Role role) {
  return role == train::Role::rng || role == train::Role::scale || role == train::Role::accumulator;
}

class LossScaling : public mpt::impl::LossScalingBase<LossScaling> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!module->hasAttr(kPolicyAttr)) {
      module.emitError() << "expected the policy's summary, got none: run precision-assign first";
      return signalPassFailure();
    }
    scaling = PrecisionSettings::of(module).scaling;
    if (!scaling.multiplies())
      module.walk([](train::ScaleLossOp seed) {
        if (!seed->hasAttr(kSeedAttr))
          return;
        seed.getResult().replaceAllUsesWith(seed.getSeed());
        seed.erase();
      });
    if (scaling.mode == Scaling::none)
      return;
    SmallVector<func::FuncOp> functions;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && !function.getOps<train::GradientOp>().empty())
        functions.push_back(function);
    if (functions.empty())
      return;
    if (scaling.mode == Scaling::dynamic && failed(addStates(module)))
      return signalPassFailure();
    for (auto state : module.getOps<train::StateOp>())
      roles[state.getSymNameAttr()] = state.getRole();
    for (func::FuncOp function : functions)
      if (failed(scale(function)))
        return signalPassFailure();
  }

private:
  LogicalResult addStates(ModuleOp module) {
    auto builder = OpBuilder::atBlockBegin(module.getBody());
    for (auto state : module.getOps<train::StateOp>())
      builder.setInsertionPointAfter(state);
    auto real = RankedTensorType::get({}, builder.getF32Type()),
         count = RankedTensorType::get({}, builder.getI32Type());
    auto add = [&](StringRef name, RankedTensorType type, Attribute value) -> LogicalResult {
      if (Operation *other = SymbolTable::lookupSymbolIn(module, name))
        return other->emitOpError() << "expected no state named " << name << " before precision-loss-scaling";
      train::StateOp::create(builder, module.getLoc(), name, type, train::Role::scale, StringAttr(),
                             DenseElementsAttr::get(type, value));
      return success();
    };
    return success(succeeded(add(kScale, real, builder.getF32FloatAttr(scaling.init))) &&
                   succeeded(add(kGoodSteps, count, builder.getI32IntegerAttr(0))) &&
                   succeeded(add(kHysteresis, count, builder.getI32IntegerAttr(scaling.hysteresis))) &&
                   (scaling.floors.empty() || succeeded(add(kSteps, count, builder.getI32IntegerAttr(0)))));
  }

  LogicalResult scale(func::FuncOp function) {
    Block &body = function.getBody().front();
    SmallVector<Operation *> seeds;
    for (Operation &op : body)
      if (op.hasAttr(kSeedAttr))
        seeds.push_back(&op);
    if (seeds.empty() && scaling.multiplies())
      return function.emitOpError() << "expected a gradient seed (" << kSeedAttr
                                    << ") before the gradients, found none";
    auto builder = OpBuilder::atBlockBegin(&body);
    GraphBuilder b(builder, (*function.getOps<train::GradientOp>().begin()).getLoc());
    auto real = RankedTensorType::get({}, builder.getF32Type());
    Value scale = scaling.mode == Scaling::dynamic ? Value(train::ReadOp::create(builder, b.loc, real, kScale))
                                                   : b.splat(real, scaling.init);
    if (scaling.multiplies())
      for (Operation *seed : seeds) {
        if (auto marked = dyn_cast<train::ScaleLossOp>(seed)) {
          marked.getScaleMutable().assign(scale);
          marked->removeAttr(kSeedAttr);
          continue;
        }
        builder.setInsertionPointAfter(seed);
        auto scaled = train::ScaleLossOp::create(builder, seed->getLoc(), seed->getResult(0), scale);
        seed->getResult(0).replaceAllUsesExcept(scaled, scaled);
      }
    SmallVector<Value> gradients;
    for (auto gradient : function.getOps<train::GradientOp>()) {
      gradients.push_back(gradient.getResult());
      if (scaling.multiplies())
        unscale(gradient, scale);
    }
    if (!function.getOps<train::WriteOp>().empty())
      commit(function, gradients, scale);
    return success();
  }

  void unscale(train::GradientOp gradient, Value scale) {
    OpBuilder builder(gradient);
    Value value = gradient.getGradient();
    auto type = tensorType(value).clone(wideType(tensorType(value).getElementType()));
    Value unscaled = train::UnscaleOp::create(builder, gradient.getLoc(), type, value, scale);
    gradient.getGradientMutable().assign(unscaled);
    gradient.getResult().setType(type);
    ++numUnscaled;
  }

  train::Role roleOf(train::WriteOp write) { return roles.lookup(write.getStateAttr().getAttr()); }

  /// The sums that a step over several micro-steps updates with: a micro-step that was not finite shows in them.
  SmallVector<Value> sums(func::FuncOp function) {
    SmallVector<Value> values;
    for (auto read : function.getOps<train::ReadOp>())
      if (roles.lookup(read.getStateAttr().getAttr()) == train::Role::accumulator)
        for (Operation *user : read->getUsers())
          values.append(user->result_begin(), user->result_end());
    return values;
  }

  /// Makes writes conditional; they move to the end, since statistics are written before the gradients are known.
  void commit(func::FuncOp function, SmallVector<Value> checked, Value scale) {
    Operation *end = function.getBody().front().getTerminator();
    bool updates = llvm::any_of(function.getOps<train::WriteOp>(), [&](train::WriteOp write) {
      return roleOf(write) == train::Role::parameter || roleOf(write) == train::Role::master;
    });
    if (updates)
      if (SmallVector<Value> total = sums(function); !total.empty())
        checked = std::move(total);
    for (Operation &op : *end->getBlock())
      if (op.hasAttr(kCheckedAttr))
        checked.append(op.result_begin(), op.result_end());
    Value last = *llvm::max_element(
        checked, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    OpBuilder builder(last.getContext());
    builder.setInsertionPointAfterValue(last);
    Location loc = last.getLoc();
    auto flag = RankedTensorType::get({}, builder.getI1Type());
    Value finite = train::AllFiniteOp::create(builder, loc, flag, checked);
    Value skipped = NotOp::create(builder, loc, finite);
    for (train::WriteOp write : llvm::to_vector(function.getOps<train::WriteOp>())) {
      if (commitsAlways(roleOf(write)))
        continue;
      write->moveBefore(end);
      builder.setInsertionPoint(write);
      Value condition = write.getCondition();
      write.getConditionMutable().assign(condition ? Value(AndOp::create(builder, loc, condition, finite)) : finite);
      ++numConditional;
    }
    builder.setInsertionPoint(end);
    if (scaling.mode == Scaling::dynamic && updates)
      nextScale(builder, loc, scale, finite);
    addResult(function, "loss_scale", scale);
    addResult(function, "skipped", skipped);
  }

  void nextScale(OpBuilder &builder, Location loc, Value scale, Value finite) {
    auto count = RankedTensorType::get({}, builder.getI32Type());
    Value good = train::ReadOp::create(builder, loc, count, kGoodSteps);
    Value left = train::ReadOp::create(builder, loc, count, kHysteresis);
    auto real = [&](double value) { return builder.getF64FloatAttr(value); };
    auto integer = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
    auto next = train::UpdateScaleOp::create(builder, loc, scale.getType(), count, count, scale, good, left, finite,
                                             real(scaling.growth), real(scaling.backoff), integer(scaling.interval),
                                             integer(scaling.hysteresis), real(scaling.min), real(scaling.max));
    Value newScale = next.getNewScale();
    if (!scaling.floors.empty()) { // they go by calls, skipped ones included
      Value steps = train::ReadOp::create(builder, loc, count, kSteps);
      newScale = train::FloorScaleOp::create(builder, loc, scale.getType(), newScale, steps, scaling.floorSteps,
                                             scaling.floors);
      train::WriteOp::create(builder, loc, kSteps, GraphBuilder(builder, loc).add(steps, 1.0), Value());
    }
    train::WriteOp::create(builder, loc, kScale, newScale, Value());
    train::WriteOp::create(builder, loc, kGoodSteps, next.getNewGoodSteps(), Value());
    train::WriteOp::create(builder, loc, kHysteresis, next.getNewHysteresisLeft(), Value());
  }

  void addResult(func::FuncOp function, StringRef name, Value value) {
    Builder b(&getContext());
    (void)function.insertResult(function.getNumResults(), value.getType(),
                                b.getDictionaryAttr(b.getNamedAttr(kNameAttr, b.getStringAttr(name))));
    Operation *end = function.getBody().front().getTerminator();
    end->insertOperands(end->getNumOperands(), value);
  }

  mpt::LossScaling scaling;
  DenseMap<StringAttr, train::Role> roles;
};
} // namespace
