// SPDX-License-Identifier: Apache-2.0
// Scatter family: updates combined at indices.
#include "Positions.h"
#include "Rules.h"
#include "mpt/Dialect/MPT/Accumulators.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Combines updates into `data` in row-major order of the updates; float sums and products round to the accumulator.
LogicalResult combine(InterpreterFrame &frame, Tensor data, Value updates, Value y, ScatterKind kind,
                      NumericsAttr numerics, const Positions &positions) {
  if (failed(positions))
    return failure();
  const Tensor &source = frame.get(updates);
  auto merge = [&](auto in, auto out, auto round) {
    for (auto [value, at] : llvm::zip_equal(in, *positions)) {
      const auto old = static_cast<std::decay_t<decltype(value)>>(out[at]);
      switch (kind) {
      case ScatterKind::assign:
        out[at] = value;
        break;
      case ScatterKind::add:
        out[at] = round(old + value);
        break;
      case ScatterKind::mul:
        out[at] = round(old * value);
        break;
      case ScatterKind::min:
        out[at] = old != old || old < value ? old : value;
        break;
      case ScatterKind::max:
        out[at] = old != old || old > value ? old : value;
        break;
      }
    }
  };
  if (data.isFloat())
    withRounding(frame.accumulatorType(data.getElementType(), numerics),
                 [&](auto round) { merge(source.reals(), data.writeReals(), round); });
  else if (data.isUnsigned64() || (kind != ScatterKind::min && kind != ScatterKind::max))
    merge(source.words(), data.writeInts(), [](uint64_t value) { return value; });
  else
    merge(source.ints(), data.writeInts(), [](int64_t value) { return value; });
  frame.set(y, std::move(data));
  return success();
}

LogicalResult interpretScatterAdd(ScatterAddOp op, InterpreterFrame &frame) {
  return combine(frame, frame.zeros(op.getY()), op.getUpdates(), op.getY(), ScatterKind::add, numericsOf(op),
                 slicePositions(op, tensorType(op.getY()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretScatterElements(ScatterElementsOp op, InterpreterFrame &frame) {
  return combine(frame, frame.get(op.getData()), op.getUpdates(), op.getY(), op.getKind(), numericsOf(op),
                 elementPositions(op, tensorType(op.getData()).getShape(), frame.get(op.getIndices()), op.getAxis()));
}

LogicalResult interpretScatterND(ScatterNDOp op, InterpreterFrame &frame) {
  return combine(
      frame, frame.get(op.getData()), op.getUpdates(), op.getY(), op.getKind(), numericsOf(op),
      tuplePositions(op, tensorType(op.getData()).getShape(), frame.get(op.getIndices()), op.getBatchDims()));
}

} // namespace

void mpt::attachScatterRules(MLIRContext *context) {
  attachRule<ScatterAddOp, interpretScatterAdd>(context);
  attachRule<ScatterElementsOp, interpretScatterElements>(context);
  attachRule<ScatterNDOp, interpretScatterND>(context);
}
