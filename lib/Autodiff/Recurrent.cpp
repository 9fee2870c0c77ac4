// SPDX-License-Identifier: Apache-2.0
// Gradients of recurrences: one composite backward op over the saved gates, and a GEMM over all steps for the weights.
#include "Rules.h"

#include "mpt/Dialect/MPT/RecurrentGradients.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(RecurrenceOp) {
  // Nobody but the backward pass reads the saved gates.
  bool isLstm = op.getCell() == RecurrentCell::lstm, isGru = op.getCell() == RecurrentCell::gru;
  bool hasBias = isGru && !op.getMore().empty(), keeps = isGru && !hasBias;
  if (!op.getSaved().empty() && (b.dy(1) || (keeps && b.dy(2))))
    return b.decompose();
  Value dy = b.dy() ? b.dy() : b.splatLike(op.getY(), 0);
  SmallVector<Value> more(isGru ? op.getSaved().take_front() : op.getSaved());
  if (isLstm)
    more.push_back(op.getMore()[0]);
  if (Value dcells = isLstm ? b.dy(2) : Value())
    more.push_back(dcells);
  auto backward = RecurrenceBackwardOp::create(b.builder, b.loc, op.getCell(), dy, op.getR(), op.getH0(), op.getY(),
                                               more, op.getReverse());
  Value dx = backward.getDx(), inside = hasBias ? backward.getOthers()[0] : Value();
  b.give(op.getX(), dx);
  b.give(op.getH0(), backward.getDh0());
  b.give(op.getR(), [&] { return recurrentWeightsGradient(b, backward, keeps ? Value(op.getSaved()[1]) : Value()); });
  if (isLstm)
    b.give(op.getMore()[0], backward.getOthers()[0]);
  if (hasBias)
    b.give(op.getMore()[0], [&] { return b.sum(inside, {0, 1}); });
}

void attachRecurrentGradients(MLIRContext *context) { attachGradients<RecurrenceOp>(context); }

} // namespace mpt
