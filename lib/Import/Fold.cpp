// SPDX-License-Identifier: Apache-2.0
// Which results import keeps as constants. What they are is the ops' own meaning (lib/Evaluation).
#include "mpt/Import/Fold.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Evaluation/Constants.h"

using namespace mlir;
using namespace mpt;

/// Larger tensors are computed at run time: masks of long sequences, random tables. Integers, which shapes are made of,
/// may be more than floats.
static constexpr int64_t largestInteger = 1 << 18, largestFloat = 1 << 14;
/// A mask repeated over a batch is cheaper to repeat at run time than to keep.
static constexpr int64_t largestBroadcast = 1 << 12;

ElementsAttr mpt::foldToConstant(Operation *op) {
  if (op->hasTrait<OpTrait::ConstantLike>() || op->getNumResults() != 1)
    return {};
  SmallVector<ElementsAttr> operands;
  for (Value operand : op->getOperands()) {
    operands.push_back(constantOf(operand));
    if (!operands.back())
      return {};
  }
  // Windows and sums of products cost more than the sizes here bound.
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type || accessPatternOf(op) == AccessPattern::Windows)
    return {};
  int64_t count = type.getNumElements();
  bool isLarge = count > (isa<FloatType>(type.getElementType()) ? largestFloat : largestInteger) ||
                 (isa<BroadcastOp>(op) && count > largestBroadcast) ||
                 llvm::any_of(operands, [](ElementsAttr operand) { return operand.getNumElements() > largestInteger; });
  return isLarge ? evaluateUniformOp(op, operands) : evaluateOp(op, operands);
}
