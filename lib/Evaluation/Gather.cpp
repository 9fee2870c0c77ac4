// SPDX-License-Identifier: Apache-2.0
// Gather family: elements, slices and tuples picked by index.
#include "Positions.h"
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

LogicalResult pick(InterpreterFrame &frame, Value x, Value y, const Positions &positions) {
  if (failed(positions))
    return failure();
  Tensor result = frame.zeros(y);
  withElements(frame.get(x), result, [&](auto in, auto out) {
    for (auto [to, from] : llvm::zip_equal(out, *positions))
      to = in[from];
  });
  frame.set(y, std::move(result));
  return success();
}

LogicalResult interpretGather(GatherOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              slicePositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretGatherElements(GatherElementsOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              elementPositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretGatherND(GatherNDOp op, InterpreterFrame &frame) {
  return pick(frame, op.getX(), op.getY(),
              tuplePositions(op, tensorType(op.getX()).getShape(), frame.get(op.getIndices()), op.getBatchDims()));
}

} // namespace

void mpt::attachGatherRules(MLIRContext *context) {
  attachRule<GatherOp, interpretGather, AccessPattern::Moves>(context);
  attachRule<GatherElementsOp, interpretGatherElements, AccessPattern::Moves>(context);
  attachRule<GatherNDOp, interpretGatherND, AccessPattern::Moves>(context);
}
