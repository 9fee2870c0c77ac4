// SPDX-License-Identifier: Apache-2.0
// Matcher: sums and differences of FP32 with a product.
#include "Contraction.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

using namespace mlir;
using namespace mpt;

/// x + p q, x - p q or p q - x. A difference of two products stays as it is: it is 0 where they are equal. So does one
/// with a square, as in a variance, which would become negative.
static Value contracted(Operation *op) {
  Value x = op->getOperand(0), y = op->getOperand(1);
  bool minus = isa<arith::SubFOp>(op);
  auto left = x.getDefiningOp<arith::MulFOp>(), right = y.getDefiningOp<arith::MulFOp>();
  if ((!left && !right) || (left && right && minus))
    return {};
  arith::MulFOp product = left ? left : right;
  if (minus && product.getLhs() == product.getRhs())
    return {};
  ImplicitLocOpBuilder b(op->getLoc(), op);
  Value p = product.getLhs(), q = product.getRhs(), rest = left ? y : x;
  if (minus && left)
    rest = arith::NegFOp::create(b, rest);
  else if (minus)
    p = arith::NegFOp::create(b, p);
  return math::FmaOp::create(b, p, q, rest);
}

void mpt::contractSums(func::FuncOp function) {
  function.walk([](Operation *op) {
    if (!isa<arith::AddFOp, arith::SubFOp>(op) || !getElementTypeOrSelf(op->getResult(0)).isF32())
      return;
    if (Value value = contracted(op)) {
      op->replaceAllUsesWith(ValueRange{value});
      op->erase();
    }
  });
}
