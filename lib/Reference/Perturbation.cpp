// SPDX-License-Identifier: Apache-2.0
// Monte Carlo arithmetic: which values round, and by how much they are moved.
#include "Perturbation.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Reference/ErrorModel.h"

using namespace mlir;
using namespace mpt;

namespace {

/// How many roundings to its results' types `op` may err by: 0 where it moves values that are in the type already.
double roundingsOf(Operation *op) {
  // Parameters are exact; that they are moved stands for the order of sums in FP32.
  if (auto read = dyn_cast<train::ReadOp>(op)) {
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(op, read.getStateAttr());
    return state && state.getRole() != train::Role::scale;
  }
  // What makes scales has one element; what applies them rounds.
  if (isa<train::TrainDialect>(op->getDialect()))
    return op->getNumResults() == 1 && cast<RankedTensorType>(op->getResult(0).getType()).getNumElements() > 1;
  if (op->hasTrait<OpTrait::ConstantLike>())
    return 0.0;
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  bool moves = semantics && semantics.getNumericClass() == NumericClass::Movement;
  auto isOfResult = [&](Type type) {
    return getElementTypeOrSelf(type) == getElementTypeOrSelf(op->getResultTypes().front());
  };
  if (moves && op->getNumResults() && llvm::any_of(op->getOperandTypes(), isOfResult))
    return 0.0;
  auto rounding = op->getAttrOfType<RoundingAttr>("rounding");
  return rounding && rounding.getValue() == Rounding::Stochastic ? 2.0 : 1.0;
}

} // namespace

void Perturbation::adjust(Operation *op, InterpreterFrame &frame) {
  double roundings = roundingsOf(op);
  auto numerics = op->getAttrOfType<NumericsAttr>("numerics");
  if (roundings == 0.0 && !numerics)
    return;
  for (OpResult result : op->getResults()) {
    auto type = dyn_cast<FloatType>(getElementTypeOrSelf(result.getType()));
    if (!type)
      continue;
    if (isa<train::ReadOp>(op))
      type = cast<FloatType>(wideType(type));
    Tensor value = frame.get(result);
    if (numerics)
      move(value, cast<FloatType>(numerics.getAcc()), std::sqrt(static_cast<double>(reductionLength(op))));
    move(value, type, roundings);
    frame.set(result, std::move(value));
  }
}

void Perturbation::move(Tensor &value, FloatType type, double roundings) {
  FloatFormat format(type);
  std::uniform_real_distribution<double> share(-roundings * magnified, roundings * magnified);
  for (double &x : value.writeReals())
    if (x != 0.0 && std::isfinite(x))
      x += share(engine) * format.epsilon() * std::max(std::fabs(x), format.smallestNormal());
}
