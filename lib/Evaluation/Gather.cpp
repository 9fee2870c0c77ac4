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

LogicalResult interpretBucketize(BucketizeOp op, InterpreterFrame &frame) {
  ArrayRef<double> boundaries = frame.get(op.getBoundaries()).reals();
  Tensor y = frame.zeros(op.getY());
  llvm::transform(frame.get(op.getX()).reals(), y.writeInts().begin(),
                  [&](double x) { return std::isnan(x) ? 0 : llvm::upper_bound(boundaries, x) - boundaries.begin(); });
  frame.set(op.getY(), std::move(y));
  return success();
}

} // namespace

void mpt::attachGatherRules(MLIRContext *context) {
  attachRule<BucketizeOp, interpretBucketize>(context);
  attachRule<GatherOp, interpretGather, AccessPattern::Moves>(context);
  attachRule<GatherElementsOp, interpretGatherElements, AccessPattern::Moves>(context);
  attachRule<GatherNDOp, interpretGatherND, AccessPattern::Moves>(context);
}
