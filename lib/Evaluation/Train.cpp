// SPDX-License-Identifier: Apache-2.0
// Train ops: state and the gradient boundary. Loss-scale arithmetic means its decomposition.
#include "Rules.h"

#include "mpt/Dialect/Train/RequestOps.h"

using namespace mlir;
using namespace mpt;

namespace {

LogicalResult interpretRead(train::ReadOp op, InterpreterFrame &frame) {
  auto found = frame.state().values.find(op.getState().str());
  if (found == frame.state().values.end() || !found->second)
    return op.emitOpError() << "expected a value of state @" << op.getState()
                            << ": give one in the module or with --state";
  frame.set(op.getValue(), found->second);
  return success();
}

LogicalResult interpretWrite(train::WriteOp op, InterpreterFrame &frame) {
  if (!op.getCondition() || scalarOf(frame, op.getCondition()) != 0.0)
    frame.state().writes[op.getState().str()] = frame.get(op.getValue());
  return success();
}

LogicalResult interpretGradient(train::GradientOp op, InterpreterFrame &frame) {
  frame.set(op.getResult(), frame.get(op.getGradient()));
  return success();
}

LogicalResult interpretDerive(train::DeriveOp op, InterpreterFrame &) {
  return op.emitOpError() << "expected a backward pass in place of the request: run training-algorithms";
}

} // namespace

void mpt::attachTrainRules(MLIRContext *context) {
  attachRule<train::ReadOp, interpretRead>(context);
  attachRule<train::WriteOp, interpretWrite>(context);
  attachRule<train::GradientOp, interpretGradient>(context);
  attachRule<train::DeriveOp, interpretDerive>(context);
  attachDecompositions<train::AllFiniteOp, train::GlobalNormOp, train::ScaleLossOp, train::UnscaleOp,
                       train::UpdateScaleOp>(context);
  attachScaleRules(context);
}
