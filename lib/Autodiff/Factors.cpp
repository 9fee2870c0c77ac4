// SPDX-License-Identifier: Apache-2.0
// Numbers that tensors are multiplied with, in the updates of a file.
// Matcher: constants, views and casts of one number; products and quotients with one.
#include "Factors.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mpt;

DenseSet<Operation *> mpt::sliceOf(Value value) {
  DenseSet<Operation *> slice;
  SmallVector<Value> work{value};
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp(); op && slice.insert(op).second)
      llvm::append_range(work, op->getOperands());
  return slice;
}

bool mpt::isOne(Value value) { return tensorType(value).getNumElements() == 1; }

DenseSet<Value> mpt::numbersBehind(Value value) {
  DenseSet<Value> numbers;
  auto isState = [](Value root) {
    auto read = root.getDefiningOp<train::ReadOp>();
    auto state = read ? SymbolTable::lookupNearestSymbolFrom<train::StateOp>(read, read.getStateAttr()) : nullptr;
    return state && state.getRole() != train::Role::parameter;
  };
  auto take = [&](Value root) {
    if (isOne(root) && (isa<BlockArgument>(root) || isState(root)))
      numbers.insert(root);
  };
  take(value);
  for (Operation *op : sliceOf(value)) {
    llvm::for_each(op->getOperands(), take);
    llvm::for_each(op->getResults(), take);
  }
  return numbers;
}

bool mpt::isNumber(Value value) {
  DenseElementsAttr constant;
  if (isOne(value) || (matchPattern(value, m_Constant(&constant)) && constant.isSplat()))
    return true;
  Operation *op = value.getDefiningOp();
  return op && isa<BroadcastOp, ReshapeOp, CastOp, NegOp>(op) && isNumber(op->getOperand(0));
}

Value mpt::withoutShape(Value value) {
  for (Operation *op; (op = value.getDefiningOp()) && isa<BroadcastOp, ReshapeOp, CastOp>(op);)
    value = op->getOperand(0);
  return value;
}

std::optional<double> mpt::numberOf(Value value) {
  DenseElementsAttr constant;
  value = withoutShape(value);
  if (!matchPattern(value, m_Constant(&constant)) || !constant.isSplat() || !isa<FloatType>(constant.getElementType()))
    return std::nullopt;
  return constant.getSplatValue<APFloat>().convertToDouble();
}

Value mpt::factorOf(Operation *op, Value value) {
  if (isa<DivOp>(op) && op->getOperand(0) == value && isNumber(op->getOperand(1)))
    return op->getOperand(1);
  for (unsigned i = 0; isa<MulOp>(op) && i < 2; ++i)
    if (op->getOperand(i) == value && op->getOperand(1 - i) != value && isNumber(op->getOperand(1 - i)))
      return op->getOperand(1 - i);
  return {};
}
