// SPDX-License-Identifier: Apache-2.0
// Values of a running region, rounding on the way in, and the loop over its ops.
#include "mpt/Evaluation/Frame.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

const Tensor &InterpreterFrame::get(Value value) const {
  auto found = values.find(value);
  if (found != values.end())
    return found->second;
  assert(parent && "value read before it was computed");
  return parent->get(value);
}

void InterpreterFrame::set(Value value, Tensor tensor) {
  assert(tensor.shape() == tensorType(value).getShape() && "rule computed a tensor of another shape");
  tensor.retype(tensorType(value));
  if (!isOracle() || !tensor.isFloat())
    tensor.normalize();
  values[value] = std::move(tensor);
}

FloatType InterpreterFrame::accumulatorType(Type elementType, NumericsAttr numerics) const {
  if (isOracle())
    return Float64Type::get(elementType.getContext());
  if (numerics)
    return cast<FloatType>(numerics.getAcc());
  return wideType(elementType);
}

Tensor InterpreterFrame::readAs(const Tensor &tensor, NumericsAttr numerics) const {
  if (!numerics || isOracle() || numerics.getIn() == tensor.getElementType())
    return tensor;
  return tensor.as(tensor.getType().clone(numerics.getIn()), /*rounds=*/true);
}

void InterpreterFrame::deliver(Value value, Tensor sums, NumericsAttr numerics) {
  if (numerics && !isOracle())
    sums = sums.as(sums.getType().clone(numerics.getOut()), /*rounds=*/true);
  set(value, std::move(sums));
}

LastReaders mpt::lastReadersOf(Block &block) {
  LastReaders readers;
  for (Operation &op : block)
    for (Value operand : op.getOperands())
      if (operand.getParentBlock() == &block)
        readers[operand] = op.hasTrait<OpTrait::IsTerminator>() ? nullptr : &op;
  return readers;
}

LogicalResult InterpreterFrame::run(Operation &op, const LastReaders &readers) {
  auto interpretable = dyn_cast<Interpretable>(op);
  if (!interpretable)
    return op.emitOpError() << "has no rule in the reference interpreter";
  if (failed(interpretable.interpret(*this)))
    return failure();
  if (observer) {
    observer->adjust(&op, *this);
    observer->computed(&op, *this);
  }
  // The last op that reads a value frees it. Values from outside the block stay.
  for (Value operand : op.getOperands())
    if (readers.lookup(operand) == &op && !kept.contains(operand))
      values.erase(operand);
  return success();
}

LogicalResult InterpreterFrame::run(Block &block) {
  LastReaders readers = lastReadersOf(block);
  for (Operation &op : block) {
    if (op.hasTrait<OpTrait::IsTerminator>())
      break;
    if (failed(run(op, readers)))
      return failure();
  }
  return success();
}
