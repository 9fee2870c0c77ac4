// SPDX-License-Identifier: Apache-2.0
// Finds the ops between constants and a value, and runs them.
#include "mpt/Evaluation/Constants.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Evaluation/Frame.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

/// A chain longer than this is a computation rather than a constant written in several steps.
static constexpr size_t mostOps = 64;

/// Whether the operands say everything about the result. Symbol users read states, which change.
static bool followsFromOperands(Operation *op) {
  return isa<Interpretable>(op) && op->getNumResults() == 1 && op->getNumRegions() == 0 && isMemoryEffectFree(op) &&
         !isa<SymbolUserOpInterface>(op);
}

/// Collects the ops that make `value`, in order; false where more than constants leads to it.
static bool collectOps(Value value, int64_t mostElements, llvm::SetVector<Operation *> &ops) {
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

std::optional<Tensor> mpt::evaluateConstant(Value value, int64_t mostElements) {
  llvm::SetVector<Operation *> ops;
  if (!collectOps(value, mostElements, ops))
    return std::nullopt;
  // An operand that a rule refuses is the program's error at run time, not one of whoever asks here.
  ScopedDiagnosticHandler silence(value.getContext(), [](Diagnostic &) { return success(); });
  EvaluationState state;
  InterpreterFrame frame(EvaluationMode::Exact, state);
  for (Operation *op : ops)
    if (failed(cast<Interpretable>(op).interpret(frame)))
      return std::nullopt;
  return frame.get(value);
}
