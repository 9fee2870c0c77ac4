// SPDX-License-Identifier: Apache-2.0
// Monte Carlo arithmetic: which values round, and by how much they are moved.
#include "Perturbation.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Reference/ErrorModel.h"

using namespace mlir;
using namespace mpt;

double mpt::roundingsOf(Operation *op) {
  // Parameters are exact; that they are moved stands for the order of sums in FP32.
  if (auto read = dyn_cast<train::ReadOp>(op)) {
    auto state = SymbolTable::lookupNearestSymbolFrom<train::StateOp>(op, read.getStateAttr());
    return state && state.getRole() != train::Role::scale;
  }
  // Ops that make scales have one element; ops that apply them round.
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

/// Root mean square of the finite elements: a sum that cancels leaves errors of its terms' size.
static double typicalSize(const Tensor &value) {
  double square = 0.0;
  for (int64_t i = 0; i < value.size(); ++i)
    if (double x = value.number(i); std::isfinite(x))
      square += x * x;
  return std::sqrt(square / static_cast<double>(std::max<int64_t>(1, value.size())));
}

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
    if (double error = tensorCoreError(op, core))
      move(value, error, typicalSize(value));
    else if (numerics)
      move(value, cast<FloatType>(numerics.getAcc()), std::sqrt(static_cast<double>(reductionLength(op))));
    move(value, type, roundings);
    frame.set(result, std::move(value));
  }
}

void Perturbation::move(Tensor &value, double error, double smallest) {
  std::uniform_real_distribution<double> share(-error * magnified, error * magnified);
  for (double &x : value.writeReals())
    if (x != 0.0 && std::isfinite(x))
      x += share(engine) * std::max(std::fabs(x), smallest);
}

void Reordering::adjust(Operation *op, InterpreterFrame &frame) {
  // Ops that move values, casts among them, round alike in both.
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  if (!semantics || semantics.getNumericClass() == NumericClass::Movement || roundingsOf(op) == 0.0)
    return;
  double error =
      magnified * std::max(0x1p-24 * std::sqrt(static_cast<double>(reductionLength(op))), tensorCoreError(op, core));
  std::uniform_real_distribution<double> share(-1.0, 1.0);
  for (OpResult result : op->getResults()) {
    auto type = dyn_cast<FloatType>(getElementTypeOrSelf(result.getType()));
    if (!type)
      continue;
    FloatFormat format(type);
    Tensor value = frame.get(result);
    double typical = typicalSize(value), largest = format.largest();
    bool narrow = type.getWidth() < 32;
    for (double &x : value.writeReals()) {
      double size = std::fabs(x);
      if (x == 0.0 || !(size < largest))
        continue;
      double step = std::max(std::exp2(std::floor(std::log2(size))), format.smallestNormal());
      double place = narrow ? share(engine) * format.epsilon() * step : 0.0; // before it was rounded
      x += place + share(engine) * error * std::max(size, typical);
    }
    frame.set(result, value.as(value.getType(), /*rounds=*/true));
  }
}
