// SPDX-License-Identifier: Apache-2.0
// Scale arithmetic in core ops: floors, scales of layers, scales of 8-bit tensors.
#include "Decompositions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/Train/ScaleOps.h"

#include <limits>

using namespace mlir;
using namespace mpt;

namespace {

double real(const APFloat &value) { return value.convertToDouble(); }
Value least(GraphBuilder &b, Value x, Value y) { return b.make<MinOp>(x, y); }
Value most(GraphBuilder &b, Value x, Value y) { return b.make<MaxOp>(x, y); }
Value isPositive(GraphBuilder &b, Value x) {
  return b.make<AndOp>(b.make<IsFiniteOp>(x), b.compare(Predicate::gt, x, 0));
}

/// The power of two at or below a positive finite FP32 number of at most 2^100; 1 for anything else. In FP32, with q =
/// (2^23 + 1) x, it is q - (1 - 2^-24) q (Rump, Ogita, Oishi, "Accurate floating-point summation part I", SISC 31(1),
/// 2008, 3.6).
Value powerOrOne(GraphBuilder &b, Value x) {
  Value q = b.mul(x, 8388609.0);
  return b.select(isPositive(b, x), b.sub(q, b.mul(q, 1 - 0x1p-24)), b.splatLike(x, 1));
}

struct FloorScale : Decomposable::ExternalModel<FloorScale, train::FloorScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::FloorScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    if (op.getFloors().empty())
      return SmallVector<Value>{op.getNext()};
    Value next = op.getNext(), step = b.add(op.getSteps(), 1.0), floor = b.splatLike(next, 0), begins;
    for (auto [from, value] : llvm::zip_equal(op.getFloorSteps(), op.getFloors())) {
      floor = b.select(b.compare(Predicate::ge, step, static_cast<double>(from)), b.splatLike(floor, value), floor);
      Value now = b.compare(Predicate::eq, step, static_cast<double>(std::max<int64_t>(from, 1)));
      begins = begins ? b.make<OrOp>(begins, now) : now;
    }
    Value bears = b.compare(Predicate::gt, op.getHysteresisLeft(),
                            static_cast<double>(op.getHysteresis()) - static_cast<double>(op.getPatience()));
    Value above = b.compare(Predicate::ge, op.getScale(), floor);
    Value holds = b.make<OrOp>(begins, b.make<AndOp>(above, bears));
    return SmallVector<Value>{b.select(holds, most(b, next, floor), next)};
  }
};

struct Rescale : Decomposable::ExternalModel<Rescale, train::RescaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::RescaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value g = b.widen(op.getGradient()), factor = b.div(op.getTo(), op.getFrom());
    Value all = b.broadcast(b.cast(factor, elementOf(g)), shapeOf(g), {});
    return SmallVector<Value>{b.cast(b.mul(g, all), elementOf(op.getResult()))};
  }
};

/// Moments of FP64 values are scales' FP32 in the end.
SmallVector<Value> inResultTypes(GraphBuilder &b, Operation *op, ArrayRef<Value> values) {
  SmallVector<Value> results;
  for (auto [value, result] : llvm::zip_equal(values, op->getResults()))
    results.push_back(b.cast(value, elementOf(result)));
  return results;
}

struct Moments : Decomposable::ExternalModel<Moments, train::MomentsOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::MomentsOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value x = b.widen(op.getX());
    SmallVector<int64_t> axes = allAxes(x);
    return inResultTypes(b, op, {b.mean(b.mul(x, x), axes), b.reduce(ReduceKind::max, b.make<AbsOp>(x), axes)});
  }
};

struct LogMoments : Decomposable::ExternalModel<LogMoments, train::LogMomentsOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::LogMomentsOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value x = b.make<AbsOp>(b.widen(op.getX())), zero = b.splatLike(x, 0), one = b.splatLike(x, 1);
    SmallVector<int64_t> axes = allAxes(x);
    Value present = b.compare(Predicate::ne, x, 0);
    Value log = b.make<LogOp>(b.select(present, x, one)); // ln 1 = 0 adds nothing
    Value count = b.sum(b.select(present, one, zero), axes);
    count = most(b, count, b.splatLike(count, 1));
    return inResultTypes(b, op,
                         {b.div(b.sum(log, axes), count), b.div(b.sum(b.mul(log, log), axes), count),
                          b.reduce(ReduceKind::max, x, axes)});
  }
};

struct LayerScale : Decomposable::ExternalModel<LayerScale, train::LayerScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::LayerScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    auto terms = static_cast<double>(op.getTerms());
    Value variance = b.mul(op.getGSquare(), op.getWSquare());
    if (op.getSpread() == "sum")
      variance = b.mul(variance, terms / 2);
    Value spread = b.mul(b.make<SqrtOp>(variance), op.getReach());
    auto number = [&](const APFloat &value) { return b.splatLike(spread, real(value)); };
    Value low = most(b, b.div(number(op.getSmallest()), spread), b.splatLike(spread, 1));
    Value top = b.mul(op.getGMax(), op.getWMax());
    Value high = b.div(b.splatLike(spread, real(op.getLargest()) / terms), top);
    Value scale = least(b, least(b, low, high),
                        least(b, number(op.getLayerMax()), b.div(number(op.getTotalMax()), op.getGain())));
    return SmallVector<Value>{b.select(isPositive(b, variance), powerOrOne(b, scale), b.splatLike(scale, 1))};
  }
};

struct CastScale : Decomposable::ExternalModel<CastScale, train::CastScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::CastScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value mean = op.getMean(), variance = b.sub(op.getSquare(), b.mul(mean, mean));
    Value deviation = b.make<SqrtOp>(most(b, variance, b.splatLike(variance, 0)));
    Value level = b.make<ExpOp>(b.add(mean, b.mul(deviation, op.getQuantile())));
    Value low = most(b, b.div(b.splatLike(level, real(op.getSmallest())), level), b.splatLike(level, 1));
    Value high = b.div(b.splatLike(level, real(op.getLargest()) / real(op.getHeadroom())), op.getMax());
    return SmallVector<Value>{powerOrOne(b, least(b, low, high))};
  }
};

struct MergeScale : Decomposable::ExternalModel<MergeScale, train::MergeScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::MergeScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value best, unit; // unit: the largest magnitude with scale 1
    for (auto [own, maximum] : llvm::zip_equal(op.getScales(), op.getMaxima())) {
      Value top = b.div(maximum, own);
      unit = unit ? most(b, unit, top) : top;
    }
    for (Value candidate : op.getScales()) {
      Value top;
      for (auto [own, maximum] : llvm::zip_equal(op.getScales(), op.getMaxima())) {
        Value scaled = b.mul(maximum, b.div(candidate, own));
        top = top ? most(b, top, scaled) : scaled;
      }
      Value fits = b.compare(Predicate::lt, top, real(op.getLargest()));
      Value kept = b.select(fits, candidate, b.splatLike(candidate, 0));
      best = best ? most(b, best, kept) : kept;
    }
    Value smaller = powerOrOne(b, b.div(b.splatLike(unit, real(op.getLargest())), unit));
    return SmallVector<Value>{b.select(b.compare(Predicate::gt, best, 0), best, smaller)};
  }
};

struct TensorScale : Decomposable::ExternalModel<TensorScale, train::TensorScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::TensorScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value amax = op.getAmax();
    double target = std::ldexp(real(op.getLargest()), -static_cast<int>(op.getMargin()));
    Value scale = least(b, b.div(b.splatLike(amax, target), amax),
                        b.splatLike(amax, static_cast<double>(std::numeric_limits<float>::max())));
    if (op.getPowerOfTwo())
      scale = powerOrOne(b, least(b, scale, b.splatLike(scale, 0x1p100)));
    return SmallVector<Value>{b.select(isPositive(b, amax), scale, op.getPrevious())};
  }
};

struct Roll : Decomposable::ExternalModel<Roll, train::RollOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::RollOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    RankedTensorType type = tensorType(op.getHistory());
    int64_t rows = type.getDimSize(0), entries = type.getDimSize(1);
    Value moved = b.reshape(op.getNewest(), {rows, 1});
    if (entries > 1)
      moved = b.concat({moved, b.slice(op.getHistory(), {0, 0}, {rows, entries - 1})}, 1);
    Value says = b.broadcast(b.compare(Predicate::ne, op.getNewest(), 0), type.getShape(), {0});
    return SmallVector<Value>{b.select(says, moved, op.getHistory())};
  }
};

} // namespace

void mpt::attachScaleModels(MLIRContext *context) {
  train::FloorScaleOp::attachInterface<FloorScale>(*context);
  train::RescaleOp::attachInterface<Rescale>(*context);
  train::MomentsOp::attachInterface<Moments>(*context);
  train::LogMomentsOp::attachInterface<LogMoments>(*context);
  train::LayerScaleOp::attachInterface<LayerScale>(*context);
  train::CastScaleOp::attachInterface<CastScale>(*context);
  train::MergeScaleOp::attachInterface<MergeScale>(*context);
  train::TensorScaleOp::attachInterface<TensorScale>(*context);
  train::RollOp::attachInterface<Roll>(*context);
}
