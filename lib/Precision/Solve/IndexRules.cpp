// SPDX-License-Identifier: Apache-2.0
// Arithmetic that ends in an index.
#include "mpt/Precision/IndexRules.h"

#include "mpt/Interfaces/Interfaces.h"

using namespace mlir;
using namespace mpt;

/// Floats become integers, element by element.
static bool makesIntegers(Operation *op) {
  if (op->getNumOperands() != 1 || op->getNumResults() != 1)
    return false;
  auto from = dyn_cast<ShapedType>(op->getOperand(0).getType()), to = dyn_cast<ShapedType>(op->getResult(0).getType());
  return from && to && isa<FloatType>(from.getElementType()) && to.getElementType().isInteger() &&
         !to.getElementType().isInteger(1) && from.hasRank() == to.hasRank() &&
         (!from.hasRank() || from.getShape() == to.getShape());
}

static bool isArithmetic(Operation *op) {
  auto semantics = dyn_cast_or_null<PrecisionSemantics>(op);
  if (!semantics || op->hasTrait<OpTrait::ConstantLike>() || op->getNumOperands() == 0)
    return false;
  NumericClass numericClass = semantics.getNumericClass();
  return numericClass == NumericClass::Neutral || numericClass == NumericClass::Movement;
}

DenseSet<Operation *> mpt::indexArithmetic(func::FuncOp function) {
  DenseSet<Operation *> found;
  SmallVector<Operation *> work;
  function.walk([&](Operation *op) {
    if (isArithmetic(op) && makesIntegers(op))
      work.push_back(op);
  });
  while (!work.empty())
    for (Value operand : work.pop_back_val()->getOperands()) {
      Operation *source = operand.getDefiningOp();
      auto type = dyn_cast<ShapedType>(operand.getType());
      if (type && isa<FloatType>(type.getElementType()) && isArithmetic(source) && found.insert(source).second)
        work.push_back(source);
    }
  return found;
}
