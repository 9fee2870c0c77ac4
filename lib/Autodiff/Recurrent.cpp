// SPDX-License-Identifier: Apache-2.0
// Gradients of recurrences: one composite backward op over the saved gates, and a GEMM over all steps for the weights.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

/// The states before each step, [steps, batch, hidden]: y moved on by one, with h0 before the first.
static Value statesBefore(Backward &b, RecurrenceOp op) {
  SmallVector<int64_t> shape(tensorType(op.getY()).getShape()), starts(3, 0);
  int64_t steps = shape[0];
  shape[0] = 1;
  Value first = b.reshape(op.getH0(), shape);
  if (steps == 1)
    return first;
  shape[0] = steps - 1;
  starts[0] = op.getReverse() ? 1 : 0;
  Value others = b.slice(op.getY(), starts, shape);
  return op.getReverse() ? b.concat({others, first}, 0) : b.concat({first, others}, 0);
}

/// [steps, batch, n] as a matrix.
static Value flat(Backward &b, Value x) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  return b.reshape(x, {shape[0] * shape[1], shape[2]});
}

MPT_GRADIENT(RecurrenceOp) {
  // Nobody but the backward pass reads the saved gates.
  if (!op.getSaved().empty() && b.dy(1))
    return b.decompose();
  bool isLstm = op.getCell() == RecurrentCell::lstm, isGru = op.getCell() == RecurrentCell::gru;
  Value dy = b.dy() ? b.dy() : b.splatLike(op.getY(), 0);
  SmallVector<Value> more(op.getSaved());
  if (isLstm)
    more.push_back(op.getMore()[0]);
  if (Value dcells = isLstm ? b.dy(2) : Value())
    more.push_back(dcells);
  auto backward = RecurrenceBackwardOp::create(b.builder, b.loc, op.getCell(), dy, op.getR(), op.getH0(), op.getY(),
                                               more, op.getReverse());
  Value dx = backward.getDx(), inside = isGru ? backward.getOthers()[0] : Value();
  b.give(op.getX(), dx);
  b.give(op.getH0(), backward.getDh0());
  b.give(op.getR(), [&] {
    Value d = flat(b, dx);
    if (isGru) {
      int64_t hidden = tensorType(inside).getDimSize(2), rows = tensorType(d).getDimSize(0);
      d = b.concat({b.slice(d, {0, 0}, {rows, 2 * hidden}), flat(b, inside)}, 1);
    }
    return b.matmul(d, flat(b, statesBefore(b, op)), true);
  });
  if (isLstm)
    b.give(op.getMore()[0], backward.getOthers()[0]);
  if (isGru)
    b.give(op.getMore()[0], [&] { return b.sum(inside, {0, 1}); });
}

void attachRecurrentGradients(MLIRContext *context) { attachGradients<RecurrenceOp>(context); }

} // namespace mpt
