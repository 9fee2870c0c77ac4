// SPDX-License-Identifier: Apache-2.0
// Matcher: operations whose derivative may be infinite.
#include "Untaken.h"

#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mpt;

namespace {

/// The operands at which an operation may have an infinite derivative, or a result from which one follows. A gradient
/// of zero times that is NaN.
SmallVector<OpOperand *> steepOperands(Operation &op) {
  SmallVector<OpOperand *> operands;
  if (isa<ExpOp, LogOp, SqrtOp, RsqrtOp, ReciprocalOp>(op))
    operands = {&op.getOpOperand(0)};
  else if (isa<DivOp, ModOp>(op))
    operands = {&op.getOpOperand(1)};
  else if (auto reduce = dyn_cast<ReduceOp>(op); reduce && reduce.getKind() == ReduceKind::prod)
    operands = {&op.getOpOperand(0)};
  else if (isa<PowOp>(op))
    operands = {&op.getOpOperand(0), &op.getOpOperand(1)};
  llvm::erase_if(operands, [](OpOperand *operand) {
    auto type = cast<RankedTensorType>(operand->get().getType());
    return !isa<FloatType>(type.getElementType()) || operand->get().getDefiningOp<ConstantOp>();
  });
  return operands;
}

/// `value` where `taken` holds, else `other`.
Value where(Binder &b, Value taken, Value value, Value other) {
  return b.select(b.broadcast(taken, tensorType(value).getShape(), {}), value, other);
}

} // namespace

void mpt::keepApart(Binder &b, Operation *before, Value taken) {
  OpBuilder::InsertionGuard guard(b.builder);
  Operation *first = before ? before->getNextNode() : &b.builder.getInsertionBlock()->front();
  // Ops that are made here lie before the op that they are made for, and are not looked at themselves.
  for (Operation *op = first; op; op = op->getNextNode()) {
    b.builder.setInsertionPoint(op);
    // One: all of them have finite derivatives there.
    for (OpOperand *operand : steepOperands(*op))
      operand->set(where(b, taken, operand->get(), b.splatLike(operand->get(), 1)));
    if (auto write = dyn_cast<train::WriteOp>(op)) {
      Value fresh = write.getValue();
      Value old = train::ReadOp::create(b.builder, write.getLoc(), fresh.getType(), write.getStateAttr());
      write.getValueMutable().assign(where(b, taken, fresh, old));
    }
  }
}

void mpt::joinWrites(Block &block, Operation *before) {
  llvm::MapVector<StringRef, train::WriteOp> writes;
  for (Operation *op = before ? before->getNextNode() : &block.front(); op;) {
    auto write = dyn_cast<train::WriteOp>(op);
    op = op->getNextNode();
    if (!write)
      continue;
    train::WriteOp &last = writes[write.getState()];
    if (last) {
      write.getValue().getDefiningOp<SelectOp>().getOnFalseMutable().assign(last.getValue());
      last.erase();
    }
    last = write;
  }
}
