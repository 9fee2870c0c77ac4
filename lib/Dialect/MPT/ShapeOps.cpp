// SPDX-License-Identifier: Apache-2.0
// Types, verification and folding of the shape family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

void ConstantOp::build(OpBuilder &builder, OperationState &state, RankedTensorType type, double splat) {
  Type element = type.getElementType();
  Attribute value;
  if (auto real = dyn_cast<FloatType>(element)) {
    APFloat number(splat);
    bool loses;
    number.convert(real.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    value = FloatAttr::get(real, number);
  } else {
    value = IntegerAttr::get(element, element.isInteger(1) ? int64_t(splat != 0.0) : static_cast<int64_t>(splat));
  }
  build(builder, state, DenseElementsAttr::get(type, value));
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValue(); }

LogicalResult ReshapeOp::verify() {
  RankedTensorType x = tensorType(getX()), y = tensorType(getY());
  if (x.getNumElements() != y.getNumElements() || x.getElementType() != y.getElementType())
    return emitOpError() << "C1: expected " << x.getNumElements() << " elements of type " << x.getElementType()
                         << ", got " << y;
  return success();
}

/// A splat keeps its value under any change of shape.
static OpFoldResult reshapeSplat(Attribute input, RankedTensorType type) {
  auto splat = dyn_cast_or_null<SplatElementsAttr>(input);
  if (!splat)
    return {};
  return splat.resizeSplat(type);
}

OpFoldResult ReshapeOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  if (auto inner = getX().getDefiningOp<ReshapeOp>()) {
    getXMutable().assign(inner.getX());
    return getY();
  }
  if (auto dense = dyn_cast_or_null<DenseElementsAttr>(adaptor.getX()))
    return dense.reshape(tensorType(getY()));
  return {};
}

MPT_INFER(TransposeOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  ArrayRef<int64_t> permutation = adaptor.getPermutation();
  SmallVector<int64_t> shape, sorted(permutation);
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(0, x.getRank())))
    return emitOptionalError(loc, "expected a permutation of ", x.getRank(), " dimensions");
  for (int64_t from : permutation)
    shape.push_back(x.getDimSize(from));
  types.push_back(x.clone(shape));
  return success();
}

OpFoldResult TransposeOp::fold(FoldAdaptor adaptor) {
  if (llvm::equal(getPermutation(), llvm::seq<int64_t>(0, getPermutation().size())))
    return getX();
  if (auto inner = getX().getDefiningOp<TransposeOp>()) {
    SmallVector<int64_t> composed;
    for (int64_t from : getPermutation())
      composed.push_back(inner.getPermutation()[from]);
    setPermutation(composed);
    getXMutable().assign(inner.getX());
    return getY();
  }
  return reshapeSplat(adaptor.getX(), tensorType(getY()));
}

LogicalResult BroadcastOp::verify() {
  RankedTensorType x = tensorType(getX()), y = tensorType(getY());
  if (static_cast<int64_t>(getDims().size()) != x.getRank() || x.getElementType() != y.getElementType())
    return emitOpError() << "C1: expected one result dimension for each dimension of " << x;
  int64_t previous = -1;
  for (auto [i, dim] : llvm::enumerate(getDims())) {
    if (dim <= previous || dim >= y.getRank())
      return emitOpError() << "C1: expected ascending dimensions below " << y.getRank() << ", got " << dim;
    if (x.getDimSize(i) != 1 && x.getDimSize(i) != y.getDimSize(dim))
      return emitOpError() << "C2: expected extent 1 or " << y.getDimSize(dim) << " in dimension " << i << " of " << x;
    previous = dim;
  }
  return success();
}

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  return reshapeSplat(adaptor.getX(), tensorType(getY()));
}

MPT_INFER(ConcatOp) {
  if (adaptor.getInputs().empty())
    return emitOptionalError(loc, "expected at least one input");
  RankedTensorType first = tensorType(adaptor.getInputs().front());
  int64_t axis = adaptor.getAxis(), extent = 0;
  if (axis < 0 || axis >= first.getRank())
    return emitOptionalError(loc, "expected an axis below ", first.getRank(), ", got ", axis);
  SmallVector<int64_t> shape(first.getShape());
  for (Value input : adaptor.getInputs()) {
    RankedTensorType type = tensorType(input);
    SmallVector<int64_t> other(type.getShape());
    if (type.getRank() == first.getRank())
      other[axis] = shape[axis];
    if (other != shape || type.getElementType() != first.getElementType())
      return emitOptionalError(loc, "expected inputs that differ along axis ", axis, " only, got ", first, " and ",
                               type);
    extent += type.getDimSize(axis);
  }
  shape[axis] = extent;
  types.push_back(first.clone(shape));
  return success();
}

MPT_INFER(SliceOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  ArrayRef<int64_t> starts = adaptor.getStarts(), sizes = adaptor.getSizes(), strides = adaptor.getStrides();
  size_t rank = x.getRank();
  if (starts.size() != rank || sizes.size() != rank || strides.size() != rank)
    return emitOptionalError(loc, "expected ", rank, " starts, sizes and strides");
  for (size_t i = 0; i < rank; ++i)
    if (starts[i] < 0 || strides[i] < 1 || sizes[i] < 0 ||
        (sizes[i] > 0 && starts[i] + (sizes[i] - 1) * strides[i] >= x.getDimSize(i)))
      return emitOptionalError(loc, "expected a slice within extent ", x.getDimSize(i), " of dimension ", i,
                               ", got start ", starts[i], ", size ", sizes[i], ", stride ", strides[i]);
  types.push_back(x.clone(sizes));
  return success();
}

OpFoldResult SliceOp::fold(FoldAdaptor adaptor) {
  if (getX().getType() == getY().getType())
    return getX();
  return reshapeSplat(adaptor.getX(), tensorType(getY()));
}

MPT_INFER(PadOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  size_t rank = x.getRank();
  ArrayRef<int64_t> low = adaptor.getLow(), high = adaptor.getHigh(), interior = adaptor.getInterior();
  if (low.size() != rank || high.size() != rank || interior.size() != rank)
    return emitOptionalError(loc, "expected ", rank, " low, high and interior margins");
  SmallVector<int64_t> shape;
  for (size_t i = 0; i < rank; ++i) {
    int64_t inner = std::max<int64_t>(x.getDimSize(i) - 1, 0) * interior[i];
    shape.push_back(low[i] + x.getDimSize(i) + inner + high[i]);
    if (interior[i] < 0 || shape.back() < 0)
      return emitOptionalError(loc, "expected a result that is not negative in dimension ", i);
  }
  types.push_back(x.clone(shape));
  return success();
}

MPT_INFER(ReverseOp) {
  types.push_back(adaptor.getX().getType());
  return success();
}
