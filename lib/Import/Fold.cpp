// SPDX-License-Identifier: Apache-2.0
// Which results import keeps as constants. Their values come from the interpreter (lib/Evaluation).
#include "mpt/Import/Fold.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Evaluation/Constants.h"
#include "mpt/Support/Refusal.h"

#define DEBUG_TYPE "import-onnx-to-core"

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
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type)
    return {};
  if (accessPatternOf(op) == AccessPattern::Windows) {
    refuse(DEBUG_TYPE, op) << "not folded: expected work that the sizes bound, got windows or sums of products";
    return {};
  }
  int64_t count = type.getNumElements();
  int64_t most = isa<BroadcastOp>(op)                    ? largestBroadcast
                 : isa<FloatType>(type.getElementType()) ? largestFloat
                                                         : largestInteger;
  bool isLarge = count > most ||
                 llvm::any_of(operands, [](ElementsAttr operand) { return operand.getNumElements() > largestInteger; });
  ElementsAttr value = isLarge ? evaluateUniformOp(op, operands) : evaluateOp(op, operands);
  if (!value && isLarge)
    refuse(DEBUG_TYPE, op) << "not folded: expected uniform operands, or at most " << most << " elements, got "
                           << count;
  else if (!value && !operands.empty())
    refuse(DEBUG_TYPE, op) << "not folded: expected operands that determine the result, got some that its rule refuses";
  return value;
}
