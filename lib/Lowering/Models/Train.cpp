// SPDX-License-Identifier: Apache-2.0
// Training arithmetic in core ops: gradients unscaled and checked, the loss scale's update.
#include "Decompositions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

namespace {

struct Unscale : Decomposable::ExternalModel<Unscale, train::UnscaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::UnscaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Type type = elementOf(op.getResult());
    Value inverse = b.make<ReciprocalOp>(b.cast(op.getScale(), type)), g = b.cast(op.getGradient(), type);
    return SmallVector<Value>{b.mul(g, everywhere(b, inverse, g))};
  }
};
struct ScaleLoss : Decomposable::ExternalModel<ScaleLoss, train::ScaleLossOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::ScaleLossOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value scale = b.cast(op.getScale(), elementOf(op.getSeed()));
    return SmallVector<Value>{b.mul(op.getSeed(), everywhere(b, scale, op.getSeed()))};
  }
};
/// The largest magnitude tells: infinity and NaN survive a maximum.
struct AllFinite : Decomposable::ExternalModel<AllFinite, train::AllFiniteOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::AllFiniteOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value all;
    for (Value value : op.getValues()) {
      Value finite = b.make<IsFiniteOp>(b.reduce(ReduceKind::max, b.make<AbsOp>(value), allAxes(value)));
      all = all ? b.make<AndOp>(all, finite) : finite;
    }
    return SmallVector<Value>{all ? all : b.scalar(builder.getI1Type(), 1)};
  }
};
struct GlobalNorm : Decomposable::ExternalModel<GlobalNorm, train::GlobalNormOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::GlobalNormOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Type type = elementOf(op.getNorm());
    Value sum;
    for (Value value : op.getValues()) {
      Value wide = b.cast(value, type), part = b.sum(b.mul(wide, wide), allAxes(value));
      sum = sum ? b.add(sum, part) : part;
    }
    return SmallVector<Value>{sum ? b.make<SqrtOp>(sum) : b.scalar(type, 0)};
  }
};
struct UpdateScale : Decomposable::ExternalModel<UpdateScale, train::UpdateScaleOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<train::UpdateScaleOp>(operation);
    GraphBuilder b(builder, op.getLoc());
    Value scale = op.getScale(), finite = op.getFinite();
    double most = op.getMax().convertToDouble(), least = op.getMin().convertToDouble();
    Value grown = b.mul(scale, op.getGrowth().convertToDouble());
    grown = b.select(b.make<IsFiniteOp>(grown), b.make<MinOp>(grown, b.splatLike(grown, most)), scale);
    Value good = b.add(op.getGoodSteps(), 1.0);
    Value due = b.compare(Predicate::ge, good, static_cast<double>(op.getInterval()));
    Value left = b.add(op.getHysteresisLeft(), -1.0);
    Value lowered = b.make<MaxOp>(b.mul(scale, op.getBackoff().convertToDouble()), b.splatLike(scale, least));
    lowered = b.select(b.compare(Predicate::le, left, 0), lowered, scale);
    Value zero = b.splatLike(good, 0), full = b.splatLike(left, static_cast<double>(op.getHysteresis()));
    return SmallVector<Value>{b.select(finite, b.select(due, grown, scale), lowered),
                              b.select(finite, b.select(due, zero, good), zero), b.select(finite, full, left)};
  }
};

} // namespace

void mpt::attachTrainModels(MLIRContext *context) {
  train::UnscaleOp::attachInterface<Unscale>(*context);
  train::ScaleLossOp::attachInterface<ScaleLoss>(*context);
  train::AllFiniteOp::attachInterface<AllFinite>(*context);
  train::GlobalNormOp::attachInterface<GlobalNorm>(*context);
  train::UpdateScaleOp::attachInterface<UpdateScale>(*context);
}
