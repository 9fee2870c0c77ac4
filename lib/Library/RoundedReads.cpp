// SPDX-License-Identifier: Apache-2.0
// Which ops can read a wide parameter and round it by themselves.
// Matcher: the rounding of a parameter, with the multiplications and the ops that pick elements behind it.
#include "mpt/Library/RoundedReads.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Interfaces/NumericClass.h"
#include "mpt/Library/Matching.h"

using namespace mlir;
using namespace mpt;

bool library::isRoundedF32(Value value) {
  auto cast = value.getDefiningOp<CastOp>();
  if (!cast || cast.getRounding() != Rounding::NearestEven || cast.getOverflow() != Overflow::Infinity)
    return false;
  Type narrow = tensorType(value).getElementType();
  return tensorType(cast.getX()).getElementType().isF32() && (narrow.isF16() || narrow.isBF16());
}

bool library::readsRounded(OpOperand &use) {
  Operation *op = use.getOwner();
  if (isa<MatMulOp, GemmOp>(op))
    return use.getOperandNumber() < 2;
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || semantics.getNumericClass() != NumericClass::Movement || op->getNumResults() != 1 ||
      isa<CastOp>(op))
    return false;
  RankedTensorType from = tensorType(use.get()), to = tensorType(op->getResult(0));
  auto isOther = [&](OpOperand &operand) {
    return &operand != &use && isa<FloatType>(tensorType(operand.get()).getElementType());
  };
  return to.getElementType() == from.getElementType() && 2 * to.getNumElements() <= from.getNumElements() &&
         llvm::none_of(op->getOpOperands(), isOther);
}

Operation *library::readerOfCopy(Value rounded) {
  SmallVector<OpOperand *> uses;
  collectUses(rounded, uses);
  for (OpOperand *use : uses)
    if (!readsRounded(*use))
      return use->getOwner();
  return nullptr;
}
