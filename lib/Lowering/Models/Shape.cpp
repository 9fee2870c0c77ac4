// SPDX-License-Identifier: Apache-2.0
// Loop lowering of data movement: each picks the operand element that a result element comes from.
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

struct ConstantModel : LoopLowering::ExternalModel<ConstantModel, ConstantOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr>) const {
    auto elements = dyn_cast<DenseElementsAttr>(cast<ConstantOp>(op).getValue());
    Type element = elementOf(op->getResult(0));
    if (!elements || !elements.isSplat())
      return e.fail(op, "expected a splat constant inside a fusion; pass others as inputs", element);
    if (auto real = dyn_cast<FloatType>(element))
      return e.constant(computeType(real), elements.getSplatValue<APFloat>().convertToDouble());
    APInt value = elements.getSplatValue<APInt>();
    Type compute = computeType(element);
    if (element.isUnsignedInteger())
      value = value.zext(compute.getIntOrFloatBitWidth());
    return arith::ConstantOp::create(e.b, e.b.getIntegerAttr(compute, value));
  }
};
struct ReshapeModel : LoopLowering::ExternalModel<ReshapeModel, ReshapeOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto reshape = cast<ReshapeOp>(op);
    IndexExpr linear = e.space.linearize(at, shapeOf(reshape.getY()));
    return e.element(reshape.getX(), e.space.delinearize(linear, shapeOf(reshape.getX())));
  }
};
struct TransposeModel : LoopLowering::ExternalModel<TransposeModel, TransposeOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto transpose = cast<TransposeOp>(op);
    SmallVector<IndexExpr> from(at.size());
    for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
      from[dim] = at[i];
    return e.element(transpose.getX(), from);
  }
};
struct BroadcastModel : LoopLowering::ExternalModel<BroadcastModel, BroadcastOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto broadcast = cast<BroadcastOp>(op);
    SmallVector<IndexExpr> from;
    for (int64_t dim : broadcast.getDims())
      from.push_back(at[dim]);
    return e.element(broadcast.getX(), from);
  }
};
struct SliceModel : LoopLowering::ExternalModel<SliceModel, SliceOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto slice = cast<SliceOp>(op);
    SmallVector<IndexExpr> from;
    for (auto [i, index] : llvm::enumerate(at))
      from.push_back(e.space.add(e.space.scale(index, slice.getStrides()[i]), IndexExpr(slice.getStarts()[i])));
    return e.element(slice.getX(), from);
  }
};
struct ReverseModel : LoopLowering::ExternalModel<ReverseModel, ReverseOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto reverse = cast<ReverseOp>(op);
    SmallVector<IndexExpr> from(at);
    for (int64_t axis : reverse.getAxes())
      from[axis] = e.space.add(e.space.scale(at[axis], -1), IndexExpr(tensorType(reverse.getX()).getDimSize(axis) - 1));
    return e.element(reverse.getX(), from);
  }
};
struct PadModel : LoopLowering::ExternalModel<PadModel, PadOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto pad = cast<PadOp>(op);
    RankedTensorType x = tensorType(pad.getX());
    SmallVector<IndexExpr> from;
    Value inside;
    for (auto [i, index] : llvm::enumerate(at)) {
      int64_t step = pad.getInterior()[i] + 1;
      IndexExpr position = e.space.add(index, IndexExpr(-pad.getLow()[i]));
      position = e.clamp(position, (x.getDimSize(i) - 1) * step + 1, inside);
      auto [quotient, rest] = e.space.divide(position, step);
      if (step > 1) {
        Value number = e.indexAs(rest, e.b.getIndexType());
        Value both[] = {arith::CmpIOp::create(e.b, arith::CmpIPredicate::eq, number, e.constantLike(number, 0.0)),
                        inside};
        if (inside)
          e.unify(both);
        inside = inside ? Value(arith::AndIOp::create(e.b, both[0], both[1])) : both[0];
      }
      from.push_back(quotient);
    }
    Value value = e.element(pad.getX(), from);
    if (!inside)
      return value;
    Value fill = e.round(e.constant(getElementTypeOrSelf(value), pad.getValue().convertToDouble()), x.getElementType());
    Value all[] = {inside, value, fill};
    e.unify(all);
    return arith::SelectOp::create(e.b, all[0], all[1], all[2]);
  }
};
struct IotaModel : LoopLowering::ExternalModel<IotaModel, IotaOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto iota = cast<IotaOp>(op);
    Type element = elementOf(iota.getY());
    return e.round(e.indexAs(at[iota.getAxis()], computeType(element)), element);
  }
};
struct ConcatModel : LoopLowering::ExternalModel<ConcatModel, ConcatOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto concat = cast<ConcatOp>(op);
    int64_t axis = concat.getAxis(), start = 0;
    Value result;
    for (Value input : concat.getInputs()) {
      int64_t extent = tensorType(input).getDimSize(axis);
      SmallVector<IndexExpr> from(at);
      Value inside;
      from[axis] = e.clamp(e.space.add(at[axis], IndexExpr(-start)), extent, inside);
      Value value = e.element(input, from);
      start += extent;
      if (result && inside) {
        Value all[] = {inside, value, result};
        e.unify(all);
        result = arith::SelectOp::create(e.b, all[0], all[1], all[2]);
      } else {
        result = value;
      }
    }
    return result;
  }
};

template <typename Op, FusionKind kind> struct Role : FusionRole::ExternalModel<Role<Op, kind>, Op> {
  FusionKind getFusionKind(Operation *) const { return kind; }
};
template <typename Op> using ViewRole = Role<Op, FusionKind::View>;

} // namespace

void mpt::attachShapeModels(MLIRContext *context) {
  ConstantOp::attachInterface<ConstantModel>(*context);
  ReshapeOp::attachInterface<ReshapeModel, ViewRole<ReshapeOp>>(*context);
  TransposeOp::attachInterface<TransposeModel, ViewRole<TransposeOp>>(*context);
  BroadcastOp::attachInterface<BroadcastModel, Role<BroadcastOp, FusionKind::Broadcast>>(*context);
  SliceOp::attachInterface<SliceModel, ViewRole<SliceOp>>(*context);
  ReverseOp::attachInterface<ReverseModel>(*context);
  PadOp::attachInterface<PadModel>(*context);
  IotaOp::attachInterface<IotaModel, Role<IotaOp, FusionKind::Generator>>(*context);
  ConcatOp::attachInterface<ConcatModel, ViewRole<ConcatOp>>(*context);
}
