// SPDX-License-Identifier: Apache-2.0
// Whether the seeds of a backward pass scale its gradients, and nothing else.
#include "SeedCheck.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

using namespace mlir;
using namespace mpt;

bool mpt::isFloat(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

OperandScale mpt::scaleOf(OpOperand &operand) {
  auto rule = dyn_cast<Linearity>(operand.getOwner());
  return rule ? rule.getOperandScale(operand.getOperandNumber()) : OperandScale::Fixed;
}

bool mpt::isZero(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
  return dense && dense.isSplat() && dense.getSplatValue<APFloat>().isZero();
}

namespace {
/// Whether each value is multiplied where the seeds are: 0 or 1; nothing where it would fit both.
class SeedCheck {
public:
  static Operation *run(func::FuncOp function, ArrayRef<Value> fixed) {
    SeedCheck check;
    for (Operation &op : function.getBody().front()) {
      if (auto gradient = dyn_cast<train::GradientOp>(op)) {
        if (check.degreeOf(gradient.getGradient()).value_or(1) != 1)
          return gradient;
        continue;
      }
      if (!check.visit(&op))
        return &op;
    }
    for (Value value : fixed)
      if (check.degreeOf(value).value_or(0) != 0)
        return value.getDefiningOp();
    return nullptr;
  }

private:
  std::optional<int> degreeOf(Value value) const {
    auto found = degrees.find(value);
    return found != degrees.end()                 ? std::optional(found->second)
           : isZero(value) || any.contains(value) ? std::nullopt
                                                  : std::optional(0);
  }

  bool visit(Operation *op) {
    if (hasAttr<MPTDialect::SeedAttrHelper>(op)) {
      degrees[op->getResult(0)] = 1;
      return true;
    }
    std::optional<int> shared, sum;
    bool linear = false, fits = true;
    for (OpOperand &operand : op->getOpOperands()) {
      if (!isFloat(operand.get()))
        continue;
      OperandScale scale = scaleOf(operand);
      std::optional<int> own = degreeOf(operand.get());
      linear |= scale != OperandScale::Fixed;
      if (scale == OperandScale::Fixed)
        fits &= own.value_or(0) == 0;
      if (scale == OperandScale::Shared && own) {
        fits &= !shared || *shared == *own;
        shared = own;
      }
      if (scale == OperandScale::Factor)
        sum = sum.value_or(0) + own.value_or(0);
    }
    if (!fits || op->getNumResults() == 0)
      return fits || isUpdate(op);
    std::optional<int> degree = sum ? sum : shared;
    for (Value result : op->getResults()) {
      if (linear && !degree)
        any.insert(result);
      else if (degree.value_or(0) != 0 && isFloat(result))
        degrees[result] = *degree;
    }
    return true;
  }

  /// The ops behind the gradients may compute with them in any way.
  static bool isUpdate(Operation *op) { return isa<train::WriteOp>(op) || op->hasTrait<OpTrait::IsTerminator>(); }

  DenseMap<Value, int> degrees;
  DenseSet<Value> any;
};
} // namespace

Operation *mpt::checkSeeds(func::FuncOp function, ArrayRef<Value> fixed) { return SeedCheck::run(function, fixed); }
