// SPDX-License-Identifier: Apache-2.0
// The backward part of a function, by data flow.
#include "mpt/Fusion/Backward.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

llvm::DenseSet<Operation *> mpt::backwardOps(func::FuncOp function) {
  Block &body = function.getBody().front();
  llvm::DenseSet<Operation *> forward, backward;
  for (OpOperand &operand : body.getTerminator()->getOpOperands()) {
    auto name = getResultAttr<MPTDialect::NameAttrHelper>(function, operand.getOperandNumber());
    if (name && name.getValue() == "loss" && operand.get().getDefiningOp())
      forward.insert(operand.get().getDefiningOp());
  }
  if (forward.empty())
    return backward;
  for (Operation &op : llvm::reverse(body))
    if (forward.contains(&op))
      for (Value operand : op.getOperands())
        if (Operation *source = operand.getDefiningOp())
          forward.insert(source);
  for (Operation &op : body) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    bool isCall = !isa<LoopLowering>(op) && !isViewOp(&op) && op.getNumOperands() != 0 && op.getNumResults() != 0;
    if ((isCall && !forward.contains(&op)) || llvm::any_of(op.getOperands(), [&](Value operand) {
          return operand.getDefiningOp() && backward.contains(operand.getDefiningOp());
        }))
      backward.insert(&op);
  }
  return backward;
}

bool mpt::storesFewerBytes(Operation *op) {
  auto narrows = [](Operation *op) {
    auto cast = dyn_cast<CastOp>(op);
    return cast && bytesOf(cast.getX()) > bytesOf(cast.getResult());
  };
  auto widens = [](Operation *op) {
    auto cast = dyn_cast<CastOp>(op);
    return cast && bytesOf(cast.getX()) < bytesOf(cast.getResult());
  };
  return narrows(op) && llvm::any_of(op->getUsers(), widens);
}
