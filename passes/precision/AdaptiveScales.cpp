// precision-adaptive-scales: layer-wise loss scaling (arXiv 1910.12385).
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/Contraction.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Precision/Attributes.h"
#include "mpt/Precision/LossyCasts.h"
#include "mpt/Precision/Settings.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

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
double largest(FloatType type) { return APFloat::getLargest(type.getFloatSemantics()).convertToDouble(); }
double smallest(FloatType type) { return APFloat::getSmallest(type.getFloatSemantics()).convertToDouble(); }

class AdaptiveScales : public mpt::impl::AdaptiveScalesBase<AdaptiveScales> {
public:
  void runOnOperation() override {
    scaling = PrecisionSettings::of(getOperation()).scaling;
    if (scaling.mode != Scaling::adaptive)
      return;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && !function.getOps<train::GradientOp>().empty() && failed(rewrite(function)))
        return signalPassFailure();
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
    bool seeded = false;
    for (Operation *op : ops) {
      if (op->hasAttr(kSeedAttr)) {
        seed(op);
        seeded = true;
      } else if (llvm::any_of(op->getOperands(), [&](Value operand) { return carried.contains(operand); })) {
        visit(op);
      }
    }
    if (!seeded)
      return function.emitOpError() << "expected a gradient seed (" << kSeedAttr
                                    << ") before the gradients, found none";
    return success();
  }

  void seed(Operation *op) {
    if (auto marked = dyn_cast<train::ScaleLossOp>(op)) {
      marked.getScaleMutable().assign(initial);
      marked->removeAttr(kSeedAttr);
      carried[marked.getResult()] = initial;
      return;
    }
    OpBuilder builder(op->getContext());
    builder.setInsertionPointAfter(op);
    auto scaled = train::ScaleLossOp::create(builder, op->getLoc(), op->getResult(0), initial);
    op->getResult(0).replaceAllUsesExcept(scaled, scaled);
    carried[scaled] = initial;
  }

  void visit(Operation *op) {
    if (auto gradient = dyn_cast<train::GradientOp>(op))
      return unscale(gradient);
    Value scale = merge(op);
    auto contraction = dyn_cast<Contraction>(op);
    FloatType type = op->getNumResults() ? elementOf(op->getResult(0)) : FloatType();
    if (isLossyCast(op) && scale == initial)
      scale = scaleCast(op, scale);
    else if (contraction && type && type.getWidth() < 32)
      return scaleProduct(op, contraction.getTermCount(), scale);
    for (Value result : op->getResults())
      if (elementOf(result))
        carried[result] = scale;
  }

  void unscale(train::GradientOp gradient) {
    OpBuilder builder(gradient);
    Value value = gradient.getGradient();
    auto type = tensorType(value).clone(wideType(tensorType(value).getElementType()));
    Value result = train::UnscaleOp::create(builder, gradient.getLoc(), type, value, carried.lookup(value));
    gradient.getGradientMutable().assign(result);
    gradient.getResult().setType(type);
  }

  /// The one scale that the gradients among `op`'s operands carry, after bringing them to it.
  Value merge(Operation *op) {
    llvm::MapVector<Value, Value> maxima; // by scale
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    SmallVector<OpOperand *> gradients;
    for (OpOperand &operand : op->getOpOperands())
      if (Value scale = carried.lookup(operand.get())) {
        gradients.push_back(&operand);
        maxima.insert({scale, Value()});
      }
    if (maxima.size() == 1)
      return maxima.front().first;
    FloatType narrowest;
    for (OpOperand *operand : gradients) {
      Value x = operand->get(), &top = maxima[carried.lookup(x)];
      Value here = b.widen(b.reduce(ReduceKind::max, b.make<AbsOp>(x), axisRange(0, tensorType(x).getRank())));
      top = top ? b.make<MaxOp>(top, here) : here;
      if (FloatType type = elementOf(x); !narrowest || type.getWidth() < narrowest.getWidth())
        narrowest = type;
    }
    SmallVector<Value> scales, tops;
    for (auto [scale, top] : maxima) {
      scales.push_back(scale);
      tops.push_back(top);
    }
    // Half the range: the sum of what meets must fit as well.
    Value target = train::MergeScaleOp::create(builder, op->getLoc(), initial.getType(), scales, tops,
                                               APFloat(largest(narrowest) / 2));
    ++numMerges;
    for (OpOperand *operand : gradients)
      operand->set(train::RescaleOp::create(builder, op->getLoc(), operand->get().getType(), operand->get(),
                                            carried.lookup(operand->get()), target));
    return target;
  }

  /// A gradient that is rounded: its scale before that.
  Value scaleCast(Operation *op, Value scale) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    FloatType type = elementOf(op->getResult(0));
    Value x = op->getOperand(0);
    auto stats =
        train::LogMomentsOp::create(builder, op->getLoc(), initial.getType(), initial.getType(), initial.getType(), x);
    Value factor = train::CastScaleOp::create(builder, op->getLoc(), initial.getType(), stats.getMean(),
                                              stats.getSquare(), stats.getMax(), APFloat(scaling.underflow),
                                              APFloat(smallest(type)), APFloat(largest(type)));
    Value next = b.mul(scale, factor);
    op->setOperand(0, train::RescaleOp::create(builder, op->getLoc(), x.getType(), x, scale, next));
    ++numScales;
    return next;
  }

  train::MomentsOp momentsOf(OpBuilder &builder, Location loc, Value x) {
    train::MomentsOp &known = moments[x];
    if (!known)
      known = train::MomentsOp::create(builder, loc, initial.getType(), initial.getType(), initial.getType(),
                                       initial.getType(), x);
    return known;
  }

  /// A narrow gradient that a product makes: kept in FP32 until it is rescaled.
  void scaleProduct(Operation *op, int64_t terms, Value scale) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    bool second = carried.contains(op->getOperand(1));
    Value g = op->getOperand(second ? 1 : 0), w = op->getOperand(second ? 0 : 1), result = op->getResult(0);
    FloatType type = elementOf(result);
    train::MomentsOp gs = momentsOf(builder, op->getLoc(), g), ws = momentsOf(builder, op->getLoc(), w);
    Value factor = train::LayerScaleOp::create(
        builder, op->getLoc(), initial.getType(), gs.getSquare(), gs.getMin(), gs.getMax(), ws.getSquare(), ws.getMin(),
        ws.getMax(), scale, terms, scaling.spread, APFloat(scaling.underflow), APFloat(smallest(type)),
        APFloat(largest(type)), APFloat(scaling.layerMax), APFloat(scaling.totalMax));
    Value next = b.mul(scale, factor);
    builder.setInsertionPointAfter(op);
    RankedTensorType narrow = tensorType(result);
    result.setType(narrow.clone(builder.getF32Type()));
    auto rescaled = train::RescaleOp::create(builder, op->getLoc(), narrow, result, scale, next);
    result.replaceAllUsesExcept(rescaled, rescaled);
    carried[rescaled] = next;
    ++numScales;
  }

  LossScaling scaling;
  Value initial;
  DenseMap<Value, Value> carried; ///< the scale of each gradient
  DenseMap<Value, train::MomentsOp> moments;
};
} // namespace
