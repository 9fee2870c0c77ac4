// SPDX-License-Identifier: Apache-2.0
// precision-loss-scaling: scale, unscale, finite check, conditional commit, next scale.
#include "passes/precision/Passes.h"

#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/OwnUpdates.h"
#include "mpt/Precision/Settings.h"
#include "mpt/Precision/Slots.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>

namespace mpt {
#define GEN_PASS_DEF_LOSSSCALING
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
constexpr StringLiteral kScale = train::TrainDialect::kLossScale, kGoodSteps = train::TrainDialect::kGoodSteps,
                        kHysteresis = train::TrainDialect::kHysteresis, kSteps = train::TrainDialect::kScaleSteps;

/// The losses that a gradient comes from, as a bit each, and the scale that it carries.
struct Carried {
  Value scale;
  uint64_t losses = 0;
};
constexpr unsigned maxLosses = 64;

/// The loss that a seed belongs to; empty where there is one.
StringRef lossOf(Operation *seed) {
  auto name = dyn_cast_or_null<StringAttr>(getAttr<MPTDialect::SeedAttrHelper>(seed));
  return name ? name.getValue() : StringRef();
}
std::string stateName(StringRef what, StringRef loss) { return loss.empty() ? what.str() : (what + "." + loss).str(); }

/// A skipped step still draws new random bits, and always moves the scale. Sums over micro-steps take up non-finite
/// values, so that the step which reads them is skipped, and are emptied after it: a mean without one of them is wrong.
bool commitsAlways(train::Role role) {
  return role == train::Role::rng || role == train::Role::scale || role == train::Role::accumulator;
}

class LossScaling : public mpt::impl::LossScalingBase<LossScaling> {
public:
  void runOnOperation() override {
    ModuleOp module = getOperation();
    if (!hasAttr<MPTDialect::PolicyAttrHelper>(module)) {
      module.emitError() << "expected the policy's summary, got none: run precision-assign first";
      return signalPassFailure();
    }
    scaling = PrecisionSettings::of(module).scaling;
    if (!scaling.multiplies())
      for (auto function : module.getOps<func::FuncOp>())
        if (!function.isExternal())
          eraseSeeds(function);
    if (scaling.mode == Scaling::none)
      return;
    if (scaling.multiplies() && failed(findUnscaled(module)))
      return signalPassFailure();
    SmallVector<func::FuncOp> functions;
    for (auto function : module.getOps<func::FuncOp>())
      if (!function.isExternal() && !function.getOps<train::GradientOp>().empty())
        functions.push_back(function);
    if (functions.empty())
      return;
    for (func::FuncOp function : functions)
      for (Operation &op : function.getBody().front())
        if (hasAttr<MPTDialect::SeedAttrHelper>(&op) && !llvm::is_contained(losses, lossOf(&op)))
          losses.push_back(lossOf(&op).str());
    if (losses.size() > maxLosses) {
      module.emitError() << "expected at most " << maxLosses << " losses, got " << losses.size();
      return signalPassFailure();
    }
    if (scaling.mode == Scaling::dynamic && failed(addStates(module)))
      return signalPassFailure();
    for (auto state : module.getOps<train::StateOp>())
      states[state.getSymNameAttr()] = state;
    for (func::FuncOp function : functions)
      if (failed(scale(function)))
        return signalPassFailure();
  }

private:
  /// Without a scale, seeds are the losses' own gradients.
  static void eraseSeeds(func::FuncOp function) {
    stateParts(function);
    for (auto seed : llvm::make_early_inc_range(function.getOps<train::ScaleLossOp>()))
      if (hasAttr<MPTDialect::SeedAttrHelper>(seed)) {
        seed.getResult().replaceAllUsesWith(seed.getSeed());
        seed.erase();
      }
  }

  /// Fails where a parameter is updated by a value behind no marked gradient: no scale would reach it.
  LogicalResult findUnscaled(ModuleOp module) {
    SymbolTable symbols(module);
    for (auto function : module.getOps<func::FuncOp>()) {
      DenseSet<StringAttr> known;
      for (auto gradient : function.getOps<train::GradientOp>())
        known.insert(gradient.getParameterAttr().getAttr());
      for (auto write : function.getOps<train::WriteOp>()) {
        auto state = symbols.lookup<train::StateOp>(write.getState());
        if (!state || (state.getRole() != train::Role::parameter && state.getRole() != train::Role::master))
          continue;
        StringAttr parameter =
            state.getRole() == train::Role::master && state.getOfAttr() ? state.getOfAttr() : state.getSymNameAttr();
        if (!known.contains(parameter) && isFedPastGradients(write.getValue()))
          return write.emitOpError() << "expected a gradient in the update of '" << parameter.getValue()
                                     << "' that the loss scale can multiply, found none; make it an output and name "
                                        "it, --gradient "
                                     << parameter.getValue()
                                     << "=OUTPUT, or train without a scale: --loss-scale=none [mpt-lost-loss-scale]";
      }
    }
    return success();
  }

  /// True where `value` is computed from inputs of the caller, numbers such as a rate aside, on a way that no marked
  /// gradient lies on.
  static bool isFedPastGradients(Value value) {
    DenseSet<Value> seen;
    SmallVector<Value> work{value};
    while (!work.empty()) {
      Value next = work.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      Operation *op = next.getDefiningOp();
      if (!op && tensorType(next).getNumElements() > 1)
        return true;
      if (op && !isa<train::GradientOp>(op))
        llvm::append_range(work, op->getOperands());
    }
    return false;
  }

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
                             DenseElementsAttr::get(type, value), /*frozen=*/false, StringAttr());
      return success();
    };
    for (StringRef loss : losses)
      if (failed(add(stateName(kScale, loss), real, builder.getF32FloatAttr(scaling.init))) ||
          failed(add(stateName(kGoodSteps, loss), count, builder.getI32IntegerAttr(0))) ||
          failed(add(stateName(kHysteresis, loss), count, builder.getI32IntegerAttr(scaling.hysteresis))))
        return failure();
    return scaling.floors.empty() ? success() : add(kSteps, count, builder.getI32IntegerAttr(0));
  }

  LogicalResult scale(func::FuncOp function) {
    Block &body = function.getBody().front();
    SmallVector<Operation *> seeds;
    for (Operation &op : body)
      if (hasAttr<MPTDialect::SeedAttrHelper>(&op))
        seeds.push_back(&op);
    if (seeds.empty() && scaling.multiplies())
      return function.emitOpError() << "expected a gradient seed (" << MPTDialect::SeedAttrHelper::getNameStr()
                                    << ") before the gradients, found none; name the value that the backward pass "
                                       "starts from, --seed NAME, or train without a scale: --loss-scale=none "
                                       "[mpt-lost-loss-scale]";
    auto builder = OpBuilder::atBlockBegin(&body);
    GraphBuilder b(builder, (*function.getOps<train::GradientOp>().begin()).getLoc());
    auto real = RankedTensorType::get({}, builder.getF32Type());
    scales.clear();
    carried.clear();
    // Of several steps in a module each moves the scales of its own losses alone.
    own.clear();
    for (Operation *seed : seeds)
      if (!llvm::is_contained(own, lossOf(seed)))
        own.push_back(lossOf(seed).str());
    if (own.empty())
      own = losses;
    if (scaling.mode == Scaling::dynamic)
      for (StringRef loss : own)
        scales.push_back(train::ReadOp::create(builder, b.loc, real, stateName(kScale, loss)));
    else
      scales.push_back(b.splat(real, scaling.init));
    if (scaling.multiplies())
      for (Operation *seed : seeds) {
        unsigned number = std::distance(own.begin(), llvm::find(own, lossOf(seed)));
        Value scale = scales[scales.size() == 1 ? 0 : number];
        carried[seed->getResult(0)] = {scale, uint64_t(1) << number};
        if (auto marked = dyn_cast<train::ScaleLossOp>(seed)) {
          marked.getScaleMutable().assign(scale);
          removeAttr<MPTDialect::SeedAttrHelper>(marked);
          continue;
        }
        builder.setInsertionPointAfter(seed);
        auto scaled = train::ScaleLossOp::create(builder, seed->getLoc(), seed->getResult(0), scale);
        seed->getResult(0).replaceAllUsesExcept(scaled, scaled);
        carried[scaled] = carried[seed->getResult(0)];
      }
    if (scales.size() > 1) {
      builder.setInsertionPointAfterValue(scales.back());
      meet(function, b);
    }
    SmallVector<Value> gradients;
    for (auto gradient : function.getOps<train::GradientOp>()) {
      gradients.push_back(gradient.getResult());
      if (scaling.multiplies())
        unscale(gradient, scales.size() > 1 ? carried.lookup(gradient.getGradient()).scale : scales.front());
    }
    return function.getOps<train::WriteOp>().empty() ? success() : commit(function, gradients);
  }

  /// Gradients of several losses that meet go on with the smallest of their scales: none overflows by that.
  void meet(func::FuncOp function, GraphBuilder &start) {
    std::map<uint64_t, Value> smallest; // by the losses, as bits
    auto scaleOf = [&](uint64_t bits) {
      Value &result = smallest[bits];
      for (unsigned i = 0, first = !result; first && i < scales.size(); ++i)
        if (bits >> i & 1)
          result = result ? start.make<MinOp>(result, scales[i]) : scales[i];
      return result;
    };
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      Carried own;
      bool same = true;
      for (Value operand : op.getOperands())
        if (auto found = carried.find(operand); found != carried.end()) {
          same &= !own.scale || own.scale == found->second.scale;
          own.scale = found->second.scale;
          own.losses |= found->second.losses;
        }
      if (!own.scale || isa<train::GradientOp>(op) || carried.contains(op.getNumResults() ? op.getResult(0) : Value()))
        continue;
      if (!same) {
        own.scale = scaleOf(own.losses);
        OpBuilder builder(&op);
        for (OpOperand &operand : op.getOpOperands())
          if (auto found = carried.find(operand.get()); found != carried.end() && found->second.scale != own.scale)
            operand.set(train::RescaleOp::create(builder, op.getLoc(), operand.get().getType(), operand.get(),
                                                 found->second.scale, own.scale));
      }
      for (Value result : op.getResults())
        if (isa<FloatType>(tensorType(result).getElementType()))
          carried[result] = own;
    }
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

  train::Role roleOf(FlatSymbolRefAttr state) { return train::StateOp(states.lookup(state.getAttr())).getRole(); }

  /// The sums that a step over several micro-steps updates with: a micro-step that was not finite shows in them.
  SmallVector<Value> sums(func::FuncOp function) {
    SmallVector<Value> values;
    for (auto read : function.getOps<train::ReadOp>())
      if (roleOf(read.getStateAttr()) == train::Role::accumulator)
        for (Operation *user : read->getUsers())
          values.append(user->result_begin(), user->result_end());
    return values;
  }

  /// A check of one gradient, or of the loss, right behind it.
  void checkAlone(Value value) {
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    flags[value] =
        train::AllFiniteOp::create(builder, value.getLoc(), RankedTensorType::get({}, builder.getI1Type()), value);
  }

  /// Gives each parameter that `function` updates a check of its own gradient, and an error where that is not enough. A
  /// finite loss, which is known before the backward pass, says that the forward pass hid nothing in its masks.
  LogicalResult checkByParameter(func::FuncOp function, ArrayRef<Value> gradients, SmallVectorImpl<Value> &checked) {
    auto refuse = [](Operation *op, const Twine &wanted, const Twine &got) {
      return mlir::emitError(op->getLoc()) << "expected " << wanted << " for a finite check by parameter, got " << got
                                           << "; check the step as a whole: --loss-scale=check=step";
    };
    for (auto [name, state] : states)
      if (state.getRole() == train::Role::accumulator)
        return refuse(function, "a step without micro-steps", "sums over them, which are states: no gradient waits");
    for (Operation &op : function.getBody().front())
      if (hasAttr<MPTDialect::CheckedAttrHelper>(&op))
        return refuse(&op, "casts that leave infinities as they are", "operands in 8 bits that saturate");
    Value loss = lossValue(function);
    if (!loss || !loss.getDefiningOp())
      return refuse(function, "a result that is the loss", "none");
    for (Value value : gradients)
      checkAlone(value);
    checkAlone(loss);
    checked.push_back(loss);
    OwnUpdates updates(function, states);
    llvm::MapVector<StringAttr, Value> flagOf; // by parameter
    for (auto gradient : function.getOps<train::GradientOp>()) {
      Value flag = flags[gradient.getResult()], valid = flags[loss];
      OpBuilder builder(function.getContext());
      builder.setInsertionPointAfterValue(valid.getDefiningOp()->isBeforeInBlock(flag.getDefiningOp()) ? flag : valid);
      flagOf[gradient.getParameterAttr().getAttr()] = AndOp::create(builder, gradient.getLoc(), flag, valid);
    }
    for (train::WriteOp write : llvm::to_vector(function.getOps<train::WriteOp>())) {
      StringAttr parameter = updates.ownerOf(write);
      if (!parameter)
        continue;
      if (failed(updates.verify(write)))
        return failure();
      Value flag = flagOf.lookup(parameter);
      if (write->isBeforeInBlock(flag.getDefiningOp()))
        write->moveAfter(flag.getDefiningOp());
      require(write, flag);
      apart.insert(write);
    }
    for (auto [parameter, flag] : flagOf)
      if (SmallVector<OpOperand *> counts = updates.countsOf(parameter); !counts.empty()) {
        Value extra = countOwn(parameter, counts);
        if (!extra)
          return failure();
        extraUpdates.emplace_back(extra, flag);
      }
    return success();
  }

  /// Lets the updates of a parameter count all that there were, in skipped steps too: the moments of its optimizer
  /// have taken these up. Returns how many there were in skipped steps; null after an error.
  Value countOwn(StringAttr parameter, ArrayRef<OpOperand *> counts) {
    RankedTensorType type = tensorType(counts.front()->get());
    std::string name = extraUpdatesOf(parameter.getValue());
    if (!addState(getOperation(), train::Role::counter, name, type, 0.0, parameter.getValue()))
      return {};
    Value extra;
    for (OpOperand *count : counts) {
      OpBuilder builder(count->getOwner());
      Location loc = count->getOwner()->getLoc();
      extra = train::ReadOp::create(builder, loc, type, name);
      count->set(AddOp::create(builder, loc, count->get(), extra));
    }
    return extra;
  }
  static void countExtra(OpBuilder &builder, Value extra, Value condition) {
    GraphBuilder b(builder, extra.getLoc());
    train::WriteOp::create(builder, b.loc, extra.getDefiningOp<train::ReadOp>().getStateAttr(), b.add(extra, 1.0),
                           condition);
  }

  void require(train::WriteOp write, Value flag) {
    OpBuilder builder(write);
    Value condition = write.getCondition();
    write.getConditionMutable().assign(condition ? Value(AndOp::create(builder, flag.getLoc(), condition, flag))
                                                 : flag);
    ++numConditional;
  }

  /// Makes writes conditional; writes that wait for the whole step move to its end, since statistics are written before
  /// the gradients are known.
  LogicalResult commit(func::FuncOp function, SmallVector<Value> checked) {
    Operation *end = function.getBody().front().getTerminator();
    bool updates = llvm::any_of(function.getOps<train::WriteOp>(), [&](train::WriteOp write) {
      train::Role role = roleOf(write.getStateAttr());
      return role == train::Role::parameter || role == train::Role::master;
    });
    SmallVector<SmallVector<Value>> alone(scales.size()); // gradients of one loss
    if (scales.size() > 1)
      for (auto gradient : function.getOps<train::GradientOp>()) {
        auto unscaled = gradient.getGradient().getDefiningOp<train::UnscaleOp>();
        uint64_t bits = unscaled ? carried.lookup(unscaled.getGradient()).losses : 0;
        if (llvm::isPowerOf2_64(bits))
          alone[llvm::Log2_64(bits)].push_back(gradient.getResult());
      }
    flags.clear();
    apart.clear();
    extraUpdates.clear();
    if (updates)
      if (SmallVector<Value> total = sums(function); !total.empty()) {
        checked = std::move(total);
        alone.assign(scales.size(), {});
      }
    if (updates && scaling.checksByParameter() &&
        failed(checkByParameter(function, SmallVector<Value>(checked), checked)))
      return failure();
    for (Operation &op : *end->getBlock())
      if (hasAttr<MPTDialect::CheckedAttrHelper>(&op))
        checked.append(op.result_begin(), op.result_end());
    Value last = *llvm::max_element(
        checked, [](Value a, Value b) { return a.getDefiningOp()->isBeforeInBlock(b.getDefiningOp()); });
    OpBuilder builder(end);
    if (flags.empty())
      builder.setInsertionPointAfterValue(last);
    Location loc = last.getLoc();
    Value finite;
    SmallVector<Value> finiteOf; // by loss: whether its scale did no harm
    if (scales.size() == 1)
      finiteOf.push_back(finite = allFinite(builder, loc, checked));
    else
      finite = finiteLosses(builder, loc, checked, alone, finiteOf);
    Value skipped = NotOp::create(builder, loc, finite);
    for (train::WriteOp write : llvm::to_vector(function.getOps<train::WriteOp>())) {
      if (commitsAlways(roleOf(write.getStateAttr())) || apart.contains(write))
        continue;
      write->moveBefore(end);
      require(write, finite);
    }
    builder.setInsertionPoint(end);
    for (auto [count, flag] : extraUpdates)
      countExtra(builder, count, AndOp::create(builder, loc, flag, skipped));
    Value least = scales.front();
    for (Value scale : ArrayRef(scales).drop_front())
      least = MinOp::create(builder, loc, least, scale);
    if (scaling.mode == Scaling::dynamic && updates)
      for (auto [i, loss] : llvm::enumerate(own))
        nextScale(builder, loc, loss, i == 0, scales[i], finiteOf[i]);
    if (scaling.mode == Scaling::adaptive && scaling.updateInterval > 1 && updates)
      countSteps(builder, loc, finite);
    addResult(function, train::Role::loss_scale, least);
    addResult(function, train::Role::skipped, skipped);
    return success();
  }

  /// One check of all `values`, or those that they have alone.
  Value allFinite(OpBuilder &builder, Location loc, ArrayRef<Value> values) {
    if (flags.empty() || values.empty())
      return train::AllFiniteOp::create(builder, loc, RankedTensorType::get({}, builder.getI1Type()), values);
    Value all = flags.lookup(values.front());
    for (Value value : values.drop_front())
      all = AndOp::create(builder, loc, all, flags.lookup(value));
    return all;
  }

  /// Whether all is finite. A loss's own gradients decide about its scale; shared gradients about all scales, unless a
  /// loss's own gradient is not finite already.
  Value finiteLosses(OpBuilder &builder, Location loc, ArrayRef<Value> checked, ArrayRef<SmallVector<Value>> own,
                     SmallVectorImpl<Value> &finiteOf) {
    DenseSet<Value> known;
    Value alone;
    for (ArrayRef<Value> gradients : own) {
      known.insert(gradients.begin(), gradients.end());
      finiteOf.push_back(allFinite(builder, loc, gradients));
      alone = alone ? Value(AndOp::create(builder, loc, alone, finiteOf.back())) : finiteOf.back();
    }
    SmallVector<Value> rest;
    llvm::copy_if(checked, std::back_inserter(rest), [&](Value value) { return !known.contains(value); });
    Value shared = allFinite(builder, loc, rest);
    Value excused = OrOp::create(builder, loc, shared, NotOp::create(builder, loc, alone));
    for (Value &finite : finiteOf)
      finite = AndOp::create(builder, loc, finite, excused);
    return AndOp::create(builder, loc, alone, shared);
  }

  /// Layers' factors hold for `update_interval` steps (the count is 0 where they are chosen anew), or until one is
  /// skipped.
  void countSteps(OpBuilder &builder, Location loc, Value finite) {
    GraphBuilder b(builder, loc);
    auto count = RankedTensorType::get({}, builder.getI32Type());
    Value steps = b.add(train::ReadOp::create(builder, loc, count, kSteps), 1.0), zero = b.splat(count, 0);
    Value holds = b.make<AndOp>(finite, b.compare(Predicate::lt, steps, static_cast<double>(scaling.updateInterval)));
    train::WriteOp::create(builder, loc, kSteps, b.select(holds, steps, zero), Value());
  }

  void nextScale(OpBuilder &builder, Location loc, StringRef loss, bool first, Value scale, Value finite) {
    auto count = RankedTensorType::get({}, builder.getI32Type());
    Value good = train::ReadOp::create(builder, loc, count, stateName(kGoodSteps, loss));
    Value left = train::ReadOp::create(builder, loc, count, stateName(kHysteresis, loss));
    auto real = [&](double value) { return builder.getF64FloatAttr(value); };
    auto integer = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
    auto next = train::UpdateScaleOp::create(builder, loc, scale.getType(), count, count, scale, good, left, finite,
                                             real(scaling.growth), real(scaling.backoff), integer(scaling.interval),
                                             integer(scaling.hysteresis), real(scaling.min), real(scaling.max));
    Value newScale = next.getNewScale();
    if (!scaling.floors.empty()) { // they go by calls, skipped ones included
      Value steps = train::ReadOp::create(builder, loc, count, kSteps);
      newScale = train::FloorScaleOp::create(builder, loc, scale.getType(), newScale, scale, steps,
                                             next.getNewHysteresisLeft(), scaling.floorSteps, scaling.floors,
                                             scaling.hysteresis, scaling.patience);
      if (first)
        train::WriteOp::create(builder, loc, kSteps, GraphBuilder(builder, loc).add(steps, 1.0), Value());
    }
    train::WriteOp::create(builder, loc, stateName(kScale, loss), newScale, Value());
    train::WriteOp::create(builder, loc, stateName(kGoodSteps, loss), next.getNewGoodSteps(), Value());
    train::WriteOp::create(builder, loc, stateName(kHysteresis, loss), next.getNewHysteresisLeft(), Value());
  }

  mpt::LossScaling scaling;
  States states;
  SmallVector<std::string> losses;  ///< "" where there is one
  SmallVector<std::string> own;     ///< of the function at hand
  SmallVector<Value> scales;        ///< of the function at hand, by loss; one for all where it is fixed
  DenseMap<Value, Carried> carried; ///< gradients of the function at hand
  // Under a finite check by parameter, of the function at hand:
  DenseMap<Value, Value> flags;                      ///< by gradient, and of the loss
  DenseSet<Operation *> apart;                       ///< writes that one gradient decides about
  SmallVector<std::pair<Value, Value>> extraUpdates; ///< counter, and the flag of its parameter
};
} // namespace
