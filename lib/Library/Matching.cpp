// SPDX-License-Identifier: Apache-2.0
// Walks through views, and the driver of patterns that form library calls.
#include "mpt/Library/Matching.h"

#include "mpt/Support/Refusal.h"

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

using namespace mlir;
using namespace mpt;

bool mpt::library::isF32Scalar(Value value) { return tensorType(value).getRank() == 0 && elementOf(value).isF32(); }

Value mpt::library::rootOf(Value value) {
  while (value.getDefiningOp() && isOperandView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

void mpt::library::collectUses(Value value, SmallVectorImpl<OpOperand *> &uses) {
  for (OpOperand &use : value.getUses())
    if (isOperandView(use.getOwner()))
      collectUses(use.getOwner()->getResult(0), uses);
    else
      uses.push_back(&use);
}

bool mpt::library::makeAvailable(Value value, Operation *op, RewriterBase &rewriter) {
  Operation *source = value.getDefiningOp();
  if (!source || source->isBeforeInBlock(op))
    return true;
  if (source->getNumOperands() != 0)
    return false;
  rewriter.moveOpBefore(source, op);
  return true;
}

void mpt::library::eraseIfDead(Operation *op, RewriterBase &rewriter) {
  if (!op || !isOpTriviallyDead(op))
    return;
  SmallVector<Value> operands(op->getOperands());
  rewriter.eraseOp(op);
  for (Value operand : operands)
    eraseIfDead(operand.getDefiningOp(), rewriter);
}

LogicalResult mpt::library::applyInOrder(SmallVector<Operation *> ops, RewritePatternSet patterns, const char *flag) {
  std::reverse(ops.begin(), ops.end()); // the driver takes the last one first
  RefusalListener refusals(flag);
  GreedyRewriteConfig config;
  config.enableFolding(false).enableConstantCSE(false).setListener(&refusals);
  config.setStrictness(GreedyRewriteStrictness::ExistingOps);
  return applyOpPatternsGreedily(ops, std::move(patterns), config);
}
