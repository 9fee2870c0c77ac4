// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface, and its short forms.
#include "mpt/Interfaces/FusionRole.h"

#include "mpt/Interfaces/Interfaces.h"

#include "mlir/IR/BuiltinTypes.h"

#include "mpt/Interfaces/FusionRole.cpp.inc"

using namespace mpt;

FusionKind mpt::fusionKindOf(mlir::Operation *op) {
  auto role = llvm::dyn_cast_or_null<FusionRole>(op);
  return role ? role.getFusionKind() : FusionKind::Ordinary;
}

bool mpt::isRematerializedByReaders(mlir::Operation *op) {
  FusionKind kind = fusionKindOf(op);
  return kind == FusionKind::Broadcast || kind == FusionKind::Generator;
}

bool mpt::isViewOp(mlir::Operation *op) { return fusionKindOf(op) == FusionKind::View; }

bool mpt::isOperandView(mlir::Operation *op) { return isViewOp(op) && op->getNumOperands() == 1; }

bool mpt::isFlat(mlir::Operation *op, llvm::ArrayRef<int64_t> shape) {
  auto typeOf = [](mlir::Value value) { return llvm::cast<mlir::ShapedType>(value.getType()); };
  if (isBroadcast(op))
    return typeOf(op->getOperand(0)).getRank() == 0;
  auto lowering = llvm::dyn_cast<LoopLowering>(op);
  if (!lowering)
    return false;
  bool ownIndex = false;
  for (mlir::OpOperand &operand : op->getOpOperands()) {
    mlir::ShapedType type = typeOf(operand.get());
    bool own = lowering.readsOwnIndex(operand.getOperandNumber());
    if (own ? type.getShape() != shape : type.getNumElements() > fewElements)
      return false;
    ownIndex |= own;
  }
  return ownIndex; // without one, elements follow from where they lie: a generator's
}
