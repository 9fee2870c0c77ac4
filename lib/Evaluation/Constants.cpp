// SPDX-License-Identifier: Apache-2.0
// Evaluation of ops on constants: of one op, and of the ops between constants and a value.
#include "mpt/Evaluation/Constants.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Evaluation/Frame.h"
#include "mpt/Interfaces/EvaluationPattern.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Threading.h"

using namespace mlir;
using namespace mpt;

namespace {

/// A chain longer than this is a computation rather than a constant written in several steps.
constexpr size_t mostOps = 64;

/// Whether the operands say everything about the result. Symbol users read states, which change.
bool followsFromOperands(Operation *op) {
  return isa<Interpretable>(op) && op->getNumResults() == 1 && op->getNumRegions() == 0 && isMemoryEffectFree(op) &&
         !isa<SymbolUserOpInterface>(op);
}

/// Runs one rule. An operand that it refuses is the program's error at run time, not one of whoever asks here.
LogicalResult interpretSilently(Operation *op, InterpreterFrame &frame) {
  // Handlers see all threads; others keep their diagnostics.
  ScopedDiagnosticHandler silence(
      op->getContext(), [here = llvm::get_threadid()](Diagnostic &) { return success(llvm::get_threadid() == here); });
  return cast<Interpretable>(op).interpret(frame);
}

/// Collects the ops that make `value`, in order; false where more than constants leads to it.
bool collectOps(Value value, int64_t mostElements, llvm::SetVector<Operation *> &ops) {
  Operation *op = value.getDefiningOp();
  if (op && ops.contains(op))
    return true;
  if (!op || !followsFromOperands(op) || tensorType(value).getNumElements() > mostElements || ops.size() >= mostOps)
    return false;
  for (Value operand : op->getOperands())
    if (!collectOps(operand, mostElements, ops))
      return false;
  ops.insert(op);
  return true;
}

/// The result of a pointwise op whose operands are uniform, from the same op on scalars.
ElementsAttr evaluateElement(Operation *op, ArrayRef<SplatElementsAttr> operands) {
  auto scalar = [](Type type) { return RankedTensorType::get({}, cast<RankedTensorType>(type).getElementType()); };
  Block scratch;
  IRMapping scalars;
  EvaluationState state;
  InterpreterFrame frame(EvaluationMode::Exact, state);
  for (auto [i, operand] : llvm::enumerate(op->getOperands())) {
    RankedTensorType type = scalar(operand.getType());
    SplatElementsAttr splat = operands[i];
    FailureOr<Tensor> element = Tensor::fromAttribute(splat.resizeSplat(type), op->getLoc());
    if (failed(element))
      return {};
    Value argument = scratch.addArgument(type, op->getLoc());
    scalars.map(operand, argument);
    frame.set(argument, std::move(*element));
  }
  Operation *one = op->clone(scalars);
  scratch.push_back(one);
  Value result = one->getResult(0);
  result.setType(scalar(result.getType()));
  if (failed(interpretSilently(one, frame)))
    return {};
  return frame.get(result).toAttribute().resizeSplat(tensorType(op->getResult(0)));
}

} // namespace

AccessPattern mpt::accessPatternOf(Operation *op) {
  auto pattern = dyn_cast<EvaluationPattern>(op);
  return pattern ? pattern.getAccessPattern() : AccessPattern::Elements;
}

ElementsAttr mpt::constantOf(Value value) {
  auto constant = value ? value.getDefiningOp<ConstantOp>() : ConstantOp();
  return constant ? constant.getValue() : ElementsAttr();
}

std::optional<double> mpt::uniformNumber(ElementsAttr value) {
  auto splat = dyn_cast<SplatElementsAttr>(value);
  if (value.getNumElements() != 1 && !(splat && value.getNumElements() > 0))
    return std::nullopt;
  ElementsAttr element = splat ? splat.resizeSplat(RankedTensorType::get({}, value.getElementType())) : value;
  FailureOr<Tensor> tensor = Tensor::fromAttribute(element, UnknownLoc::get(value.getContext()));
  return succeeded(tensor) ? std::optional(tensor->number(0)) : std::nullopt;
}

std::optional<Tensor> mpt::evaluateConstant(Value value, int64_t mostElements) {
  llvm::SetVector<Operation *> ops;
  if (!collectOps(value, mostElements, ops))
    return std::nullopt;
  EvaluationState state;
  InterpreterFrame frame(EvaluationMode::Exact, state);
  for (Operation *op : ops)
    if (failed(interpretSilently(op, frame)))
      return std::nullopt;
  return frame.get(value);
}

ElementsAttr mpt::evaluateUniformOp(Operation *op, ArrayRef<ElementsAttr> operands) {
  AccessPattern pattern = accessPatternOf(op);
  if (!followsFromOperands(op) || operands.empty())
    return {};
  SmallVector<SplatElementsAttr> splats;
  for (ElementsAttr operand : operands) {
    splats.push_back(dyn_cast<SplatElementsAttr>(operand));
    if (!splats.back())
      return {};
  }
  RankedTensorType type = tensorType(op->getResult(0));
  if (pattern == AccessPattern::Moves && type.getNumElements() > 0)
    return splats[0].resizeSplat(type);
  bool sameShapes = llvm::all_of(op->getOperandTypes(), [&](Type operand) {
    return cast<RankedTensorType>(operand).getShape() == type.getShape();
  });
  if (pattern == AccessPattern::Pointwise && sameShapes)
    return evaluateElement(op, splats);
  return {};
}

ElementsAttr mpt::evaluateOp(Operation *op, ArrayRef<ElementsAttr> operands) {
  if (ElementsAttr uniform = evaluateUniformOp(op, operands))
    return uniform;
  if (!followsFromOperands(op))
    return {};
  RankedTensorType type = tensorType(op->getResult(0));
  if (type.getNumElements() == 0)
    return Tensor(type).toAttribute();
  EvaluationState state;
  InterpreterFrame frame(EvaluationMode::Exact, state);
  for (auto [operand, value] : llvm::zip_equal(op->getOperands(), operands)) {
    FailureOr<Tensor> tensor = Tensor::fromAttribute(value, op->getLoc());
    if (failed(tensor))
      return {};
    frame.set(operand, std::move(*tensor));
  }
  if (failed(interpretSilently(op, frame)))
    return {};
  return frame.get(op->getResult(0)).toAttribute();
}
