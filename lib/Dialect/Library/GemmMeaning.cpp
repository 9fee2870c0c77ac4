// SPDX-License-Identifier: Apache-2.0
// What GEMMs mean in core ops.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// alpha, scales and op(a) op(b), in `wide`.
Value scaledSums(GemmOp op, GraphBuilder &b, FloatType wide) {
  RankedTensorType type = tensorType(op.getD()).clone(wide);
  NumericsAttr numerics = op.getNumericsAttr();
  if (numerics)
    numerics = NumericsAttr::get(op.getContext(), numerics.getIn(), numerics.getAcc(), wide);
  Value sums = b.make<MatMulOp>(type, op.getA(), op.getB(), op.getTransposeA(), op.getTransposeB(), numerics);
  if (!op.getAlpha().isExactlyValue(1.0))
    sums = b.mul(sums, op.getAlpha().convertToDouble());
  SmallVector<Value> scales(op.getOperandScales());
  if (op.getScale())
    scales.push_back(op.getScale());
  for (Value scale : scales)
    sums = b.mul(sums, b.broadcast(b.cast(scale, wide), type.getShape(), {}));
  return sums;
}

Value activated(GemmOp op, GraphBuilder &b, Value x) {
  switch (op.getForm().getActivation()) {
  case Activation::none:
    return x;
  case Activation::relu:
    return b.make<ReluOp>(x);
  case Activation::gelu_tanh:
    return b.make<GeluOp>(x, GeluForm::tanh);
  case Activation::gelu_tanh_gradient:
    return b.make<GeluBackwardOp>(x, b.cast(op.getAux(), tensorType(x).getElementType()), GeluForm::tanh);
  }
  llvm_unreachable("an activation without meaning");
}

/// The matrix that is summed, and the dimension along which that happens; `d` is the result.
std::pair<Value, int64_t> summed(GemmOp op, Value d) {
  switch (op.getForm().getSum()) {
  case GemmSum::none:
    return {};
  case GemmSum::a:
    return {op.getA(), op.getTransposeA() ? 0 : 1};
  case GemmSum::b:
    return {op.getB(), op.getTransposeB() ? 1 : 0};
  case GemmSum::d:
    return {d, 0};
  }
  llvm_unreachable("a sum without meaning");
}

} // namespace

SmallVector<Value> GemmOp::expand(OpBuilder &builder) {
  GraphBuilder b(builder, getLoc());
  RankedTensorType type = tensorType(getD());
  Type element = type.getElementType();
  FloatType wide = wideType(element);
  auto rounded = [&](Value x) { return getForm().getRound() ? b.cast(b.cast(x, element), wide) : x; };
  Value x = rounded(scaledSums(*this, b, wide));
  if (getBias())
    x = rounded(b.add(x, b.broadcast(b.cast(getBias(), wide), type.getShape(), {type.getRank() - 1})));
  SmallVector<Value> results{b.cast(activated(*this, b, x), element)};
  if (getForm().getKeep())
    results.push_back(b.cast(x, element));
  if (auto [matrix, axis] = summed(*this, results[0]); matrix)
    results.push_back(b.cast(b.sum(b.cast(matrix, wide), {axis}), element));
  return results;
}
