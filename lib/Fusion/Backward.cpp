// SPDX-License-Identifier: Apache-2.0
// The backward part of a function, by data flow.
#include "mpt/Fusion/Backward.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

static bool isCall(Operation &op) {
  return !isa<LoopLowering>(op) && !isViewOp(&op) && op.getNumOperands() != 0 && op.getNumResults() != 0;
}

llvm::DenseSet<Operation *> mpt::backwardOps(func::FuncOp function) {
  TrainingParts parts(function);
  llvm::DenseSet<Operation *> backward;
  for (Operation &op : function.getBody().front()) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      continue;
    if ((isCall(op) && !parts.isForward(&op)) || llvm::any_of(op.getOperands(), [&](Value operand) {
          return operand.getDefiningOp() && backward.contains(operand.getDefiningOp());
        }))
      backward.insert(&op);
  }
  return backward;
}

void mpt::addLateOps(Block &block, llvm::DenseSet<Operation *> &late) {
  for (Operation &op : llvm::reverse(block))
    if (hasAttr<MPTDialect::RecomputedAttrHelper>(&op) ||
        (!op.use_empty() && !storesFewerBytes(&op) && !isReduction(&op) &&
         llvm::all_of(op.getUsers(), [&](Operation *user) { return late.contains(user); })))
      late.insert(&op);
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
