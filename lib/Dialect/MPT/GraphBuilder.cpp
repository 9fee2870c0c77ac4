// SPDX-License-Identifier: Apache-2.0
// Short forms for building core ops.
#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "mpt/Dialect/MPT/Splats.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mpt;

FloatType mpt::wideType(Type elementType) {
  auto type = cast<FloatType>(elementType);
  return type.getWidth() >= 32 ? type : Float32Type::get(type.getContext());
}

SmallVector<int64_t> mpt::otherAxes(int64_t rank, ArrayRef<int64_t> axes) {
  SmallVector<int64_t> result;
  for (int64_t i = 0; i < rank; ++i)
    if (!llvm::is_contained(axes, i))
      result.push_back(i);
  return result;
}

SmallVector<int64_t> mpt::axisRange(int64_t from, int64_t to) { return llvm::to_vector(llvm::seq(from, to)); }

Value GraphBuilder::splat(RankedTensorType type, double value) { return ConstantOp::create(builder, loc, type, value); }

Value GraphBuilder::scalar(Type elementType, double value) {
  return splat(RankedTensorType::get({}, elementType), value);
}

Value GraphBuilder::constant(ElementsAttr value) { return make<ConstantOp>(value); }

Value GraphBuilder::indices(ArrayRef<int64_t> values) {
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, builder.getI64Type());
  return constant(DenseElementsAttr::get(type, values));
}

Value GraphBuilder::cast(Value x, Type elementType) {
  if (tensorType(x).getElementType() == elementType)
    return x;
  return make<CastOp>(x, elementType);
}

Value GraphBuilder::reshape(Value x, ArrayRef<int64_t> shape) {
  if (tensorType(x).getShape() == shape)
    return x;
  return make<ReshapeOp>(tensorType(x).clone(shape), x);
}

Value GraphBuilder::transpose(Value x, ArrayRef<int64_t> permutation) {
  if (llvm::equal(permutation, llvm::seq<int64_t>(0, permutation.size())))
    return x;
  return make<TransposeOp>(x, permutation);
}

Value GraphBuilder::broadcast(Value x, ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) {
  if (tensorType(x).getShape() == shape)
    return x;
  return make<BroadcastOp>(tensorType(x).clone(shape), x, dims);
}

Value GraphBuilder::broadcastTo(Value x, ArrayRef<int64_t> shape) {
  int64_t rank = shape.size(), lead = rank - tensorType(x).getRank();
  return broadcast(x, shape, axisRange(lead, rank));
}

Value GraphBuilder::broadcastAlong(Value x, ArrayRef<int64_t> shape, ArrayRef<int64_t> axes) {
  return broadcast(x, shape, otherAxes(shape.size(), axes));
}

Value GraphBuilder::reduce(ReduceKind kind, Value x, ArrayRef<int64_t> axes) {
  if (axes.empty())
    return x;
  return make<ReduceOp>(x, kind, axes, NumericsAttr());
}

Value GraphBuilder::sumTo(Value x, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> from = tensorType(x).getShape();
  int64_t lead = static_cast<int64_t>(from.size()) - static_cast<int64_t>(shape.size());
  SmallVector<int64_t> axes = axisRange(0, lead);
  for (auto [i, extent] : llvm::enumerate(shape))
    if (extent == 1 && from[lead + i] != 1)
      axes.push_back(lead + i);
  return reshape(sum(x, axes), shape);
}

Value GraphBuilder::matmul(Value a, Value b, bool transposeA, bool transposeB) {
  return make<MatMulOp>(a, b, transposeA, transposeB, NumericsAttr());
}

Value GraphBuilder::slice(Value x, ArrayRef<int64_t> starts, ArrayRef<int64_t> sizes, ArrayRef<int64_t> strides) {
  SmallVector<int64_t> ones(starts.size(), 1);
  return make<SliceOp>(x, starts, sizes, strides.empty() ? ArrayRef<int64_t>(ones) : strides);
}

std::optional<double> mpt::splatNumber(Value value) {
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return splatNumber(broadcast.getX());
  auto constant = value.getDefiningOp<ConstantOp>();
  auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
  if (!splat || !isa<FloatType>(splat.getElementType()))
    return std::nullopt;
  APFloat number = splat.getSplatValue<APFloat>();
  bool loses;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return number.convertToDouble();
}
