// SPDX-License-Identifier: Apache-2.0
// Constraints of attention and its gradients.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// C1 and C2.
template <typename Op> LogicalResult checkOperands(Op op) {
  RankedTensorType q = tensorType(op.getQ()), k = tensorType(op.getK()), v = tensorType(op.getV());
  Type element = q.getElementType();
  for (RankedTensorType type : {q, k, v, tensorType(op.getO())})
    if (type.getRank() != 4 || type.getElementType() != element)
      return op.emitOpError() << "C1: expected q, k, v and o of rank 4 and element type " << element << ", got "
                              << type;
  if (q.getDimSize(3) != k.getDimSize(3))
    return op.emitOpError() << "C2: expected one depth of q and k, got " << q << " and " << k;
  if (k.getShape().take_front(3) != v.getShape().take_front(3))
    return op.emitOpError() << "C2: expected one batch and equal heads and keys of k and v, got " << k << " and " << v;
  if (q.getDimSize(0) != k.getDimSize(0) || k.getDimSize(1) == 0 || q.getDimSize(1) % k.getDimSize(1) != 0)
    return op.emitOpError() << "C2: expected one batch, and heads of q divisible by those of k, got " << q << " and "
                            << k;
  return success();
}

/// C7.
template <typename Op> LogicalResult checkDropout(Op op) {
  double ratio = op.getRatio().convertToDouble();
  if (!op.getKey())
    return ratio == 0 ? success() : op.emitOpError() << "C7: expected a key for ratio " << ratio << ", got none";
  RankedTensorType key = tensorType(op.getKey());
  if (key.getRank() != 1 || key.getDimSize(0) != 2 || !key.getElementType().isInteger(64))
    return op.emitOpError() << "C7: expected a key of two 64-bit elements, got " << key;
  if (!(ratio > 0 && ratio < 1))
    return op.emitOpError() << "C7: expected a ratio between 0 and 1 beside a key, got " << ratio;
  return success();
}

/// C3 to C5.
template <typename Op> LogicalResult checkResults(Op op) {
  RankedTensorType q = tensorType(op.getQ()), k = tensorType(op.getK()), v = tensorType(op.getV());
  SmallVector<int64_t> shape(q.getShape());
  RankedTensorType stats = RankedTensorType::get(ArrayRef(shape).drop_back(), Float32Type::get(op.getContext()));
  if (op.getStats().getType() != stats)
    return op.emitOpError() << "C4: expected stats of type " << stats << ", got " << op.getStats().getType();
  shape.back() = v.getDimSize(3);
  if (tensorType(op.getO()).getShape() != ArrayRef(shape))
    return op.emitOpError() << "C3: expected o of shape [" << shape << "], got " << op.getO().getType();
  if (!op.getBias())
    return success();
  RankedTensorType bias = tensorType(op.getBias());
  bool fits = bias.getRank() == 4 && bias.getDimSize(3) == k.getDimSize(2);
  for (int64_t i = 0; i < 3 && fits; ++i)
    fits = bias.getDimSize(i) == 1 || bias.getDimSize(i) == q.getDimSize(i);
  if (!fits)
    return op.emitOpError() << "C5: expected a bias [batch or 1, heads or 1, queries or 1, keys] for " << q << " and "
                            << k << ", got " << bias;
  return success();
}

} // namespace

LogicalResult AttentionOp::verify() {
  return failed(checkOperands(*this)) || failed(checkDropout(*this)) ? failure() : checkResults(*this);
}

LogicalResult AttentionGradientOp::verify() {
  if (failed(checkOperands(*this)) || failed(checkDropout(*this)) || failed(checkResults(*this)))
    return failure();
  std::pair<Value, Value> pairs[] = {{getO(), getDO()}, {getQ(), getDq()}, {getK(), getDk()}, {getV(), getDv()}};
  for (auto [value, gradient] : pairs)
    if (value.getType() != gradient.getType())
      return emitOpError() << "C6: expected a gradient of type " << value.getType() << ", got " << gradient.getType();
  return success();
}
