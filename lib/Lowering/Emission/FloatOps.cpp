// SPDX-License-Identifier: Apache-2.0
// Expansion of conversions and exponentials that emission leaves whole, for targets without instructions for them.
// Matcher: the four ops of the arith and math dialects that KernelTarget::keepsFloatOps names.
#include "mpt/Lowering/Emission/FloatOps.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

using namespace mlir;
using namespace mpt;

namespace {

/// BF16 and 8 bits: no processor of ours converts them in one instruction of LLVM's.
bool isNarrow(Value value) {
  Type type = getElementTypeOrSelf(value);
  return isa<FloatType>(type) && !type.isF16() && type.getIntOrFloatBitWidth() <= 16;
}

/// FP32 in place of 16 bits: the same number, since each result is one of the operands or a flag.
Value widened(ValueBuilder &e, Operation *op) {
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(arith::ExtFOp::create(e.b, e.typeLike(e.b.getF32Type(), operand), operand));
  OperationState state(op->getLoc(), op->getName(), operands, {}, op->getAttrs());
  Type result = op->getResult(0).getType();
  state.addTypes(isa<arith::CmpFOp>(op) ? result : operands.front().getType());
  Value value = e.b.create(state)->getResult(0);
  return isa<arith::CmpFOp>(op) ? value : Value(arith::TruncFOp::create(e.b, result, value));
}

Value expanded(ElementEmitter &e, Operation *op) {
  if (auto widen = dyn_cast<arith::ExtFOp>(op))
    return isNarrow(widen.getIn()) ? e.widen(widen.getIn()) : Value();
  if (auto narrow = dyn_cast<arith::TruncFOp>(op)) {
    Type type = getElementTypeOrSelf(narrow.getType());
    return isNarrow(narrow) ? e.narrow(e.round(narrow.getIn(), type), type) : Value();
  }
  if (auto power = dyn_cast<math::Exp2Op>(op); power && getElementTypeOrSelf(power.getType()).isF32())
    return MathBuilder(e).exp2(power.getOperand());
  auto exp = dyn_cast<math::ExpOp>(op);
  return exp && getElementTypeOrSelf(exp.getType()).isF32() ? MathBuilder(e).exp(exp.getOperand()) : Value();
}

} // namespace

void mpt::widenExactOps(Operation *root, const KernelTarget &target) {
  root->walk([&](Operation *op) {
    if (!isa<arith::CmpFOp, arith::MaximumFOp, arith::MinimumFOp, math::AbsFOp, arith::NegFOp>(op) ||
        getElementTypeOrSelf(op->getOperand(0)).getIntOrFloatBitWidth() != 16)
      return;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    ValueBuilder e(b, target);
    op->replaceAllUsesWith(ValueRange{widened(e, op)});
    op->erase();
  });
}

void mpt::foldFloat8RoundTrips(Operation *root, const KernelTarget &target) {
  root->walk([&](arith::ExtFOp op) {
    auto narrow = op.getIn().getDefiningOp<arith::TruncFOp>();
    Type type = getElementTypeOrSelf(op.getIn());
    if (!narrow || type.getIntOrFloatBitWidth() != 8 || op.getType() != narrow.getIn().getType() ||
        !getElementTypeOrSelf(op.getType()).isF32())
      return;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    op.replaceAllUsesWith(ElementEmitter(b, target, /*probe=*/false).round(narrow.getIn(), type));
    op.erase();
  });
}

void mpt::expandFloatOps(Operation *root, const KernelTarget &target) {
  foldFloat8RoundTrips(root, target);
  root->walk([&](Operation *op) {
    if (!isa<arith::ExtFOp, arith::TruncFOp, math::ExpOp, math::Exp2Op>(op))
      return;
    ImplicitLocOpBuilder b(op->getLoc(), op);
    ElementEmitter e(b, target, /*probe=*/false);
    if (Value value = expanded(e, op)) {
      op->replaceAllUsesWith(ValueRange{value});
      op->erase();
    }
  });
}
