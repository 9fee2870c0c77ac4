// SPDX-License-Identifier: Apache-2.0
// precision-adaptive-scales: layer-wise loss scaling (arXiv 1910.12385).
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/KeptFactors.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/Settings.h"
#include "mpt/Precision/Slots.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

namespace mpt {
#define GEN_PASS_DEF_ADAPTIVESCALES
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
FloatType elementOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type ? dyn_cast<FloatType>(type.getElementType()) : FloatType();
}
constexpr double unbounded = 3e38;
/// The power of two at or below a positive number.
double powerBelow(double x) { return std::exp2(std::floor(std::log2(x))); }

/// The scale of a gradient. `base` is the scale with which it was first rounded, whatever the loss was multiplied by:
/// the layers' factors since then are scale / base. While both are the initial scale it is still wide.
struct Carried {
  Value scale, base;
};

/// The value whose elements `value` shows in another shape or order.
Value withoutViews(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isOperandView(op) || tensorType(op->getOperand(0)).getNumElements() != tensorType(value).getNumElements())
      break;
    value = op->getOperand(0);
  }
  return value;
}

class AdaptiveScales : public mpt::impl::AdaptiveScalesBase<AdaptiveScales> {
public:
  void runOnOperation() override {
    scaling = PrecisionSettings::of(getOperation()).scaling;
    if (scaling.mode != Scaling::adaptive)
      return;
    std::optional<KeptFactors> states;
    if (scaling.updateInterval > 1)
      states.emplace(getOperation());
    kept = states ? &*states : nullptr;
    SmallVector<func::FuncOp> functions;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && !function.getOps<train::GradientOp>().empty())
        functions.push_back(function);
    if (kept)
      llvm::stable_sort(functions, [&](func::FuncOp a, func::FuncOp b) { return kept->updates(a) > kept->updates(b); });
    for (func::FuncOp function : functions)
      if (failed(rewrite(function)))
        return signalPassFailure();
    if (kept && !functions.empty())
      kept->addStates();
  }

private:
  LogicalResult rewrite(func::FuncOp function) {
    carried.clear();
    moments.clear();
    Block &body = function.getBody().front();
    SmallVector<Operation *> ops;
    for (Operation &op : body)
      ops.push_back(&op);
    auto start = OpBuilder::atBlockBegin(&body);
    GraphBuilder b(start, function.getLoc());
    initial = b.splat(RankedTensorType::get({}, start.getF32Type()), scaling.init);
    if (kept)
      kept->begin(function);
    bool seeded = false;
    for (Operation *op : ops) {
      if (hasAttr<MPTDialect::SeedAttrHelper>(op)) {
        seed(op);
        seeded = true;
      } else if (llvm::any_of(op->getOperands(), [&](Value operand) { return carried.contains(operand); })) {
        visit(op);
      }
    }
    if (!seeded)
      return function.emitOpError() << "expected a gradient seed (" << MPTDialect::SeedAttrHelper::getNameStr()
                                    << ") before the gradients, found none [mpt-lost-loss-scale]";
    if (kept)
      kept->end(function);
    return success();
  }

  double largest(FloatType type) const {
    return scaling.largest > 0 ? scaling.largest : APFloat::getLargest(type.getFloatSemantics()).convertToDouble();
  }
  double smallest(FloatType type) const {
    return scaling.smallest > 0 ? scaling.smallest : APFloat::getSmallest(type.getFloatSemantics()).convertToDouble();
  }
  bool countsFirst() const { return scaling.totalFrom == "loss"; }
  bool scalesFirst() const { return scaling.first != "none"; }

  /// `factor`, or the one kept for `site`, within the bounds that hold in this step. Powers of two throughout, so that
  /// bounding and rounding down may change places.
  Value bound(GraphBuilder &b, Operation *site, Value factor, Value gain) {
    if (kept)
      factor = kept->keep(b, site, factor);
    Value total = b.div(b.splatLike(factor, powerBelow(scaling.totalMax)), gain);
    return b.make<MinOp>(b.make<MinOp>(factor, b.splatLike(factor, powerBelow(scaling.layerMax))), total);
  }

  void seed(Operation *op) {
    if (auto marked = dyn_cast<train::ScaleLossOp>(op)) {
      marked.getScaleMutable().assign(initial);
      removeAttr<MPTDialect::SeedAttrHelper>(marked);
      carried[marked.getResult()] = {initial, initial};
      return;
    }
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    auto scaled = train::ScaleLossOp::create(builder, op->getLoc(), op->getResult(0), initial);
    op->getResult(0).replaceAllUsesExcept(scaled, scaled);
    carried[scaled] = {initial, initial};
  }

  void visit(Operation *op) {
    if (auto gradient = dyn_cast<train::GradientOp>(op))
      return unscale(gradient);
    Carried own = merge(op);
    FloatType type = op->getNumResults() ? elementOf(op->getResult(0)) : FloatType();
    bool narrow = type && type.getWidth() < 32;
    if (narrow && isa<GemmLike>(op))
      return scaleProduct(op, own);
    if (own.scale == initial && scalesFirst() && isLossyCast(op))
      own = scaleFirst(op, op->getOpOperand(0), own.scale);
    bool rounds = own.scale == initial && scalesFirst() && hasFlexibleTypes(op) &&
                  llvm::none_of(op->getOperands(), [&](Value operand) {
                    return carried.contains(operand) && elementOf(operand).getWidth() < 32;
                  });
    for (Value result : op->getResults()) {
      if (FloatType type = elementOf(result); type && type.getWidth() < 32 && rounds)
        scaleResult(op, result, own.scale);
      else if (type)
        carried[result] = own;
    }
  }

  void unscale(train::GradientOp gradient) {
    OpBuilder builder(gradient);
    Value value = gradient.getGradient();
    auto type = tensorType(value).clone(wideType(tensorType(value).getElementType()));
    Value result = train::UnscaleOp::create(builder, gradient.getLoc(), type, value, carried.lookup(value).scale);
    gradient.getGradientMutable().assign(result);
    gradient.getResult().setType(type);
  }

  /// The scale of the gradients among `op`'s operands, after bringing them to one.
  Carried merge(Operation *op) {
    llvm::MapVector<Value, Value> maxima; // by scale
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    SmallVector<OpOperand *> gradients;
    Value base;
    bool oneBase = true;
    for (OpOperand &operand : op->getOpOperands())
      if (auto found = carried.find(operand.get()); found != carried.end()) {
        gradients.push_back(&operand);
        maxima.insert({found->second.scale, Value()});
        oneBase &= !base || base == found->second.base;
        base = found->second.base;
      }
    if (maxima.size() == 1)
      return {maxima.front().first, base};
    FloatType narrowest;
    for (OpOperand *operand : gradients) {
      Value x = operand->get(), &top = maxima[carried.lookup(x).scale];
      Value here = momentsOf(builder, op->getLoc(), x).getMax();
      top = top ? b.make<MaxOp>(top, here) : here;
      if (FloatType type = elementOf(x); !narrowest || type.getWidth() < narrowest.getWidth())
        narrowest = type;
    }
    SmallVector<Value> scales, tops;
    for (auto [scale, top] : maxima) {
      scales.push_back(scale);
      tops.push_back(top);
    }
    // Half the range: the sum of merged gradients must fit as well.
    Value target = train::MergeScaleOp::create(builder, op->getLoc(), initial.getType(), scales, tops,
                                               APFloat(largest(narrowest) / 2));
    ++numMerges;
    for (OpOperand *operand : gradients)
      operand->set(train::RescaleOp::create(builder, op->getLoc(), operand->get().getType(), operand->get(),
                                            carried.lookup(operand->get()).scale, target));
    return {target, oneBase ? base : target};
  }

  /// The scale of `x`, which carries `scale` and is still wide, in `type`.
  Value firstScale(OpBuilder &builder, Operation *op, Value x, FloatType type, Value scale) {
    Location loc = op->getLoc();
    GraphBuilder b(builder, loc);
    auto stats = train::LogMomentsOp::create(builder, loc, initial.getType(), initial.getType(), initial.getType(),
                                             withoutViews(x));
    Value factor = train::CastScaleOp::create(builder, loc, initial.getType(), stats.getMean(), stats.getSquare(),
                                              stats.getMax(), APFloat(scaling.underflow), APFloat(smallest(type)),
                                              APFloat(largest(type)), APFloat(scaling.headroom));
    ++numScales;
    if (countsFirst())
      factor = bound(b, op, factor, scale);
    else if (kept)
      factor = kept->keep(b, op, factor);
    return b.mul(scale, factor);
  }

  /// A gradient that a cast rounds: its scale before that.
  Carried scaleFirst(Operation *op, OpOperand &operand, Value scale) {
    OpBuilder builder(op);
    Value x = operand.get();
    Value next = firstScale(builder, op, x, elementOf(op->getResult(0)), scale);
    operand.set(train::RescaleOp::create(builder, op->getLoc(), x.getType(), x, scale, next));
    return {next, next};
  }

  /// A gradient that an op makes of wide ones and rounds itself: in FP32 until it has a scale.
  void scaleResult(Operation *op, Value result, Value scale) {
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    RankedTensorType narrow = tensorType(result);
    result.setType(narrow.clone(builder.getF32Type()));
    Value next = firstScale(builder, op, result, cast<FloatType>(narrow.getElementType()), scale);
    rescale(builder, result, narrow, scale, {next, next});
  }

  /// All readers of `result` but statistics get it in type `narrow`, with the scale of `next`.
  void rescale(OpBuilder &builder, Value result, RankedTensorType narrow, Value scale, Carried next) {
    auto rescaled = train::RescaleOp::create(builder, result.getLoc(), narrow, result, scale, next.scale);
    result.replaceUsesWithIf(rescaled, [&](OpOperand &use) {
      return use.getOwner() != rescaled && !isa<train::LogMomentsOp>(use.getOwner());
    });
    carried[rescaled] = next;
  }

  /// Made where the value is, so that its producer gathers them.
  train::MomentsOp momentsOf(OpBuilder &builder, Location loc, Value x) {
    x = withoutViews(x);
    train::MomentsOp &known = moments[x];
    if (!known)
      known = train::MomentsOp::create(builder, loc, initial.getType(), initial.getType(), x);
    return known;
  }

  /// A narrow gradient that a GEMM or convolution makes: kept in FP32 until it is rescaled.
  void scaleProduct(Operation *op, Carried own) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    bool second = carried.contains(op->getOperand(1));
    Value g = op->getOperand(second ? 1 : 0), w = op->getOperand(second ? 0 : 1), result = op->getResult(0);
    RankedTensorType narrow = tensorType(result);
    auto type = cast<FloatType>(narrow.getElementType());
    train::MomentsOp gs = momentsOf(builder, op->getLoc(), g), ws = momentsOf(builder, op->getLoc(), w);
    Value gain = countsFirst() ? own.scale : b.div(own.scale, own.base);
    Value factor = train::LayerScaleOp::create(
        builder, op->getLoc(), initial.getType(), gs.getSquare(), gs.getMax(), ws.getSquare(), ws.getMax(), gain,
        cast<GemmLike>(op).getReductionLength(), scaling.spread, APFloat(scaling.underflow), APFloat(smallest(type)),
        APFloat(largest(type)), APFloat(kept ? unbounded : scaling.layerMax),
        APFloat(kept ? unbounded : scaling.totalMax));
    if (kept) // bounds of a factor that was chosen earlier hold in each step
      factor = bound(b, op, factor, gain);
    Value next = b.mul(own.scale, factor);
    builder.setInsertionPointAfter(op);
    result.setType(narrow.clone(builder.getF32Type()));
    rescale(builder, result, narrow, own.scale, {next, own.base});
    ++numScales;
  }

  LossScaling scaling;
  KeptFactors *kept = nullptr; ///< where factors hold for several steps
  Value initial;
  DenseMap<Value, Carried> carried;
  DenseMap<Value, train::MomentsOp> moments;
};
} // namespace
