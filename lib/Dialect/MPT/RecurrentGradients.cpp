// SPDX-License-Identifier: Apache-2.0
// Gradients of a recurrence's weights: GEMMs over all steps.
#include "mpt/Dialect/MPT/RecurrentGradients.h"

using namespace mlir;
using namespace mpt;

Value mpt::flattenSteps(GraphBuilder &b, Value x) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  return b.reshape(x, {shape[0] * shape[1], shape[2]});
}

Value mpt::statesBefore(GraphBuilder &b, Value y, Value h0, bool reverse) {
  SmallVector<int64_t> shape(tensorType(y).getShape()), starts(3, 0);
  int64_t steps = shape[0];
  shape[0] = 1;
  Value first = b.reshape(h0, shape);
  if (steps == 1)
    return first;
  shape[0] = steps - 1;
  starts[0] = reverse ? 1 : 0;
  Value others = b.slice(y, starts, shape);
  return reverse ? b.concat({others, first}, 0) : b.concat({first, others}, 0);
}

Value mpt::recurrentWeightsGradient(GraphBuilder &b, RecurrenceBackwardOp backward, Value kept) {
  Value d = flattenSteps(b, backward.getDx());
  Value before = flattenSteps(b, statesBefore(b, backward.getY(), backward.getH0(), backward.getReverse()));
  if (backward.getCell() != RecurrentCell::gru)
    return b.matmul(d, before, true);
  int64_t rows = tensorType(d).getDimSize(0), hidden = tensorType(before).getDimSize(1);
  auto block = [&](int64_t from, int64_t count) { return b.slice(d, {0, from * hidden}, {rows, count * hidden}); };
  if (!kept)
    return b.matmul(b.concat({block(0, 2), flattenSteps(b, backward.getOthers()[0])}, 1), before, true);
  // The weights of the last gate have met the state behind the reset gate.
  kept = b.cast(flattenSteps(b, kept), tensorType(before).getElementType());
  return b.concat({b.matmul(block(0, 2), before, true), b.matmul(block(2, 1), kept, true)}, 0);
}
