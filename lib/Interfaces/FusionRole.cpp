// SPDX-License-Identifier: Apache-2.0
// Generated methods of the interface, and its short forms.
#include "mpt/Interfaces/FusionRole.h"

#include "mpt/Interfaces/FusionRole.cpp.inc"

bool mpt::isViewOp(mlir::Operation *op) {
  auto role = llvm::dyn_cast<FusionRole>(op);
  return role && role.isView();
}

bool mpt::isOperandView(mlir::Operation *op) { return isViewOp(op) && op->getNumOperands() == 1; }
