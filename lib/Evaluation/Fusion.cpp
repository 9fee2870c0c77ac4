// SPDX-License-Identifier: Apache-2.0
// Fusion regions, and ops that mean their decomposition.
#include "Rules.h"
#include "mpt/Dialect/MPT/Accumulators.h"

using namespace mlir;
using namespace mpt;

static LogicalResult interpretInside(Operation *op, InterpreterFrame &frame, InterpreterFrame &inner,
                                     Expansion expand) {
  Block scratch;
  OpBuilder builder(op->getContext());
  builder.setInsertionPointToEnd(&scratch);
  FailureOr<SmallVector<Value>> results = expand(builder);
  if (failed(results))
    return failure();
  inner.keep(*results);
  if (failed(inner.run(scratch)))
    return failure();
  for (auto [result, value] : llvm::zip_equal(op->getResults(), *results))
    frame.set(result, inner.get(value));
  return success();
}

static FailureOr<SmallVector<Value>> decompose(Operation *op, OpBuilder &builder) {
  if (auto composite = dyn_cast<Decomposable>(op))
    return decomposeAccumulating(composite, builder);
  return op->emitOpError() << "expected a decomposition";
}

LogicalResult mpt::interpretExpansion(Operation *op, InterpreterFrame &frame, Expansion expand) {
  InterpreterFrame inner(frame, /*isolated=*/false);
  return interpretInside(op, frame, inner, expand);
}

LogicalResult mpt::interpretDecomposition(Operation *op, InterpreterFrame &frame) {
  return interpretExpansion(op, frame, [&](OpBuilder &builder) { return decompose(op, builder); });
}

LogicalResult mpt::interpretRounded(Operation *op, InterpreterFrame &frame) {
  InterpreterFrame inner(frame, EvaluationMode::Exact);
  return interpretInside(op, frame, inner, [&](OpBuilder &builder) { return decompose(op, builder); });
}

static LogicalResult interpretFusion(FusionOp op, InterpreterFrame &frame) {
  Block &body = op.getBody().front();
  InterpreterFrame inner(frame, /*isolated=*/true);
  for (auto [argument, input] : llvm::zip_equal(body.getArguments(), op.getInputs()))
    inner.set(argument, frame.get(input));
  if (failed(inner.run(body)))
    return failure();
  for (auto [result, value] : llvm::zip_equal(op.getOutputs(), body.getTerminator()->getOperands()))
    frame.set(result, inner.get(value));
  return success();
}

void mpt::attachFusionRules(MLIRContext *context) { attachRule<FusionOp, interpretFusion>(context); }
