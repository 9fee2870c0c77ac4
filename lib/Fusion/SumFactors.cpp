// SPDX-License-Identifier: Apache-2.0
// Factors that all terms of a sum share are multiplied with the sum.
// Matcher: sums and means of products of which some factors repeat along the summed axes.
#include "mpt/Fusion/ReductionStages.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Support/Refusal.h"

#define DEBUG_TYPE "fusion-decompose"

using namespace mlir;
using namespace mpt;

namespace {

/// The factors of a product that was multiplied from left to right. A second factor that is a product itself stays
/// whole, as the normalized input of a batch norm does.
void collectFactors(Value value, SmallVectorImpl<Value> &factors) {
  auto product = value.getDefiningOp<MulOp>();
  if (!product) {
    factors.push_back(value);
    return;
  }
  collectFactors(product.getLhs(), factors);
  factors.push_back(product.getRhs());
}

/// The tensor of which `value` is a broadcast along `axes`. Single numbers stay: where loss scales are multiplied is
/// not for this to say.
Value repeatedAlong(Value value, ArrayRef<int64_t> axes) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  if (!broadcast || countOf(broadcast.getX()) <= 1)
    return {};
  bool varies = llvm::any_of(broadcast.getDims(), [&](int64_t dim) { return llvm::is_contained(axes, dim); });
  return varies ? Value() : broadcast.getX();
}

} // namespace

bool mpt::hoistFactors(ReduceOp op) {
  Type element = elementOf(op.getX());
  if ((op.getKind() != ReduceKind::sum && op.getKind() != ReduceKind::mean) || !isa<FloatType>(element) ||
      element.getIntOrFloatBitWidth() < 32 || elementOf(op.getY()) != element)
    return refuse(DEBUG_TYPE, op) << "no factor hoisted: expected a sum of FP32 or FP64 values, got another reduction";
  SmallVector<Value> factors, rest, hoisted;
  collectFactors(op.getX(), factors);
  for (Value factor : factors)
    (repeatedAlong(factor, op.getAxes()) ? hoisted : rest).push_back(factor);
  if (hoisted.empty() || rest.empty())
    return refuse(DEBUG_TYPE, op) << "no factor hoisted: expected some that repeat along the summed axes, and others";
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  Value terms = rest.front();
  for (Value factor : ArrayRef(rest).drop_front())
    terms = b.mul(terms, factor);
  // A sum, whichever it was: terms summed for several purposes are summed once.
  Value result = ReduceOp::create(builder, op.getLoc(), op.getY().getType(), terms, ReduceKind::sum, op.getAxes(),
                                  op.getNumericsAttr());
  RankedTensorType type = tensorType(op.getY());
  SmallVector<int64_t> kept;
  for (int64_t i = 0, rank = rankOf(op.getX()); i < rank; ++i)
    if (!llvm::is_contained(op.getAxes(), i))
      kept.push_back(i);
  for (Value factor : hoisted) {
    auto broadcast = factor.getDefiningOp<BroadcastOp>();
    SmallVector<int64_t> dims;
    for (int64_t dim : broadcast.getDims())
      dims.push_back(llvm::find(kept, dim) - kept.begin());
    Value small = broadcast.getX();
    result = b.mul(result,
                   tensorType(small).getShape() == type.getShape() ? small : b.broadcast(small, type.getShape(), dims));
  }
  if (op.getKind() == ReduceKind::mean)
    result = b.mul(result, static_cast<double>(type.getNumElements()) / static_cast<double>(countOf(op.getX())));
  op.getY().replaceAllUsesWith(result);
  op.erase();
  return true;
}
