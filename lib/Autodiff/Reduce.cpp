// SPDX-License-Identifier: Apache-2.0
// Gradients of the reduce family.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

/// Equal extrema share the gradient evenly.
static Value extremumGradient(Backward &b, ReduceOp op) {
  Value x = op.getX();
  ArrayRef<int64_t> shape = tensorType(x).getShape(), axes = op.getAxes();
  Type wide = wideType(tensorType(x).getElementType());
  Value mask = b.compare(Predicate::eq, x, b.broadcastAlong(op.getY(), shape, axes));
  Value count = b.sum(b.cast(mask, wide), axes);
  Value share = b.cast(b.div(b.widen(b.dy()), count), tensorType(x).getElementType());
  return b.where(mask, b.broadcastAlong(share, shape, axes));
}

/// dy times the product of the other elements; exact with zeros: with one, only its own slope is not 0, with two none.
static Value productGradient(Backward &b, ReduceOp op) {
  ArrayRef<int64_t> shape = tensorType(op.getX()).getShape(), axes = op.getAxes();
  Value x = b.widen(op.getX()), isZero = b.compare(Predicate::eq, x, 0.0);
  Value zeros = b.sum(b.cast(isZero, tensorType(x).getElementType()), axes);
  Value filled = b.select(isZero, b.splatLike(x, 1.0), x), product = b.reduce(ReduceKind::prod, filled, axes);
  // Zeros that are not this element's own.
  Value own = b.cast(isZero, tensorType(x).getElementType());
  Value others = b.sub(b.broadcastAlong(zeros, shape, axes), own);
  Value slope = b.div(b.broadcastAlong(b.mul(product, b.widen(b.dy())), shape, axes), filled);
  return b.where(b.compare(Predicate::eq, others, 0.0), slope);
}

MPT_GRADIENT(ReduceOp) {
  ArrayRef<int64_t> shape = tensorType(op.getX()).getShape(), axes = op.getAxes();
  b.give(op.getX(), [&]() -> Value {
    switch (op.getKind()) {
    case ReduceKind::sum:
      return b.broadcastAlong(b.dy(), shape, axes);
    case ReduceKind::mean: {
      double count =
          static_cast<double>(tensorType(op.getX()).getNumElements()) / tensorType(op.getY()).getNumElements();
      return b.broadcastAlong(b.mul(b.dy(), 1.0 / count), shape, axes);
    }
    case ReduceKind::max:
    case ReduceKind::min:
      return extremumGradient(b, op);
    case ReduceKind::prod:
      return productGradient(b, op);
    }
    llvm_unreachable("unknown reduction");
  });
}
MPT_GRADIENT(CumSumOp) {
  b.give(op.getX(), [&] { return b.make<CumSumOp>(b.dy(), op.getAxis(), op.getExclusive(), !op.getReverse()); });
}

void attachReduceGradients(MLIRContext *context) { attachGradients<ReduceOp, CumSumOp>(context); }

} // namespace mpt
