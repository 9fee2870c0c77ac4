// SPDX-License-Identifier: Apache-2.0
// Matcher: sums and differences of FP32 with a product, and halves of sums with 1.
#include "Contraction.h"
#include "mpt/Lowering/Emission/ValueBuilder.h"

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

/// (x + 1) / 2 as x / 2 + 1 / 2, the same number: half of a sum that is not far below 1 is exact. Null elsewhere.
static Value halved(arith::MulFOp op) {
  std::optional<double> factor = ValueBuilder::numberIn(op.getRhs());
  auto sum = op.getLhs().getDefiningOp<arith::AddFOp>();
  if (!factor || *factor != 0.5 || !sum || ValueBuilder::numberIn(sum.getRhs()) != 1.0)
    return {};
  ImplicitLocOpBuilder b(op->getLoc(), op);
  return math::FmaOp::create(b, sum.getLhs(), op.getRhs(), op.getRhs());
}

void mpt::contractSums(func::FuncOp function) {
  function.walk([](arith::MulFOp op) {
    if (!getElementTypeOrSelf(op.getType()).isF32())
      return;
    if (Value value = halved(op)) {
      op.replaceAllUsesWith(value);
      op.erase();
    }
  });
  function.walk([](Operation *op) {
    if (!isa<arith::AddFOp, arith::SubFOp>(op) || !getElementTypeOrSelf(op->getResult(0)).isF32())
      return;
    if (Value value = contracted(op)) {
      op->replaceAllUsesWith(ValueRange{value});
      op->erase();
    }
  });
}
