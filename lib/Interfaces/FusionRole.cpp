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

bool mpt::isPlaceless(mlir::Operation *op) {
  if (isBroadcast(op))
    return llvm::cast<mlir::ShapedType>(op->getOperand(0).getType()).getRank() == 0;
  auto lowering = llvm::dyn_cast<LoopLowering>(op);
  return lowering && llvm::any_of(op->getOpOperands(), [&](mlir::OpOperand &operand) {
           return lowering.readsOwnIndex(operand.getOperandNumber());
         });
}
