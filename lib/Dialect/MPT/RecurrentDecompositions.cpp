// SPDX-License-Identifier: Apache-2.0
// Recurrences in GEMMs and elementwise ops, step by step. Gates, cell states and sums are FP32 or wider.
#include "mpt/Dialect/MPT/RecurrentCells.h"

using namespace mlir;
using namespace mpt;

namespace {

using Values = CellValues;

/// Each step becomes some dozens of ops.
constexpr int64_t mostSteps = 1 << 13;

LogicalResult checkSteps(Operation *op, Value y) {
  if (int64_t steps = tensorType(y).getDimSize(0); steps > mostSteps)
    return op->emitOpError() << "expected at most " << mostSteps << " steps where they are unrolled, got " << steps
                             << "; split the sequence";
  return success();
}

/// Shared by both passes over the steps.
struct Steps {
  Steps(OpBuilder &builder, Operation *op, Value y, Value r, bool reverse)
      : b(builder, op->getLoc()), r(r), steps(tensorType(y).getDimSize(0)), batch(tensorType(y).getDimSize(1)),
        hidden(tensorType(y).getDimSize(2)), reverse(reverse), wide(wideType(tensorType(y).getElementType())) {}

  GraphBuilder b;
  Value r;
  int64_t steps, batch, hidden;
  bool reverse;
  FloatType wide;

  /// The index of the i-th step, in the order in which they run.
  int64_t index(int64_t i) const { return reverse ? steps - 1 - i : i; }
  /// Step `t` of a tensor [steps, batch, ...], wide.
  Value at(Value x, int64_t t) {
    int64_t width = tensorType(x).getDimSize(2);
    return b.cast(b.reshape(b.slice(x, {t, 0, 0}, {1, batch, width}), {batch, width}), wide);
  }
  /// The `count` blocks that lie side by side.
  Values blocks(Value x, int64_t count) {
    Values result;
    for (int64_t i = 0; i < count; ++i)
      result.push_back(count == 1 ? x : b.slice(x, {0, i * hidden}, {batch, hidden}));
    return result;
  }
  Value joined(ValueRange blocks) { return b.concat(blocks, 1); }
  /// The steps' values as a tensor of `like`'s type.
  Value stack(ArrayRef<Value> parts, Value like) {
    Values rows;
    for (Value part : parts)
      rows.push_back(
          b.cast(b.reshape(part, {1, batch, tensorType(part).getDimSize(1)}), tensorType(like).getElementType()));
    return rows.size() == 1 ? rows.front() : b.concat(rows, 0);
  }
  /// `x`, rounded to the weights' type, times them (transposed forward), with wide sums.
  Value product(Value x, bool transposed) { return product(x, r, transposed); }
  Value product(Value x, Value weights, bool transposed) {
    auto narrow = llvm::cast<FloatType>(tensorType(weights).getElementType());
    auto type = RankedTensorType::get({batch, tensorType(weights).getDimSize(transposed ? 0 : 1)}, wide);
    auto numerics = NumericsAttr::get(b.builder.getContext(), narrow, wide, wide);
    return MatMulOp::create(b.builder, b.loc, type, b.cast(x, narrow), weights, false, transposed, numerics);
  }
  /// The weights of gates [from, from + count).
  Value weightsOf(int64_t from, int64_t count) { return b.slice(r, {from * hidden, 0}, {count * hidden, hidden}); }
  Value cast(Value x, Value like) { return b.cast(x, tensorType(like).getElementType()); }
};

/// One pass over the steps, forward.
struct Forward : Steps {
  Forward(OpBuilder &builder, RecurrenceOp op)
      : Steps(builder, op, op.getY(), op.getR(), op.getReverse()), op(op), ys(steps), gates(steps), cells(steps),
        h(b.cast(op.getH0(), wide)) {
    if (!op.getMore().empty())
      more = b.cast(op.getMore()[0], wide);
  }

  RecurrenceOp op;
  Values ys, gates, cells; ///< by step; with reset first, GRU's r * state in place of cell states
  Value h, more;           ///< the state, and c0 (then the cell state) or GRU's bias

  Values run() {
    for (int64_t i = 0; i < steps; ++i) {
      int64_t t = index(i);
      step(t, at(op.getX(), t));
      ys[t] = h;
    }
    Values results = {stack(ys, op.getY())};
    const Values *parts[] = {&gates, &cells};
    for (auto [i, saved] : llvm::enumerate(op.getSaved()))
      results.push_back(stack(*parts[i], saved));
    return results;
  }

private:
  void step(int64_t t, Value x) {
    switch (op.getCell()) {
    case RecurrentCell::lstm:
      return lstm(t, x);
    case RecurrentCell::gru:
      return more ? gru(t, x) : gruResetFirst(t, x);
    case RecurrentCell::tanh:
    case RecurrentCell::relu:
      h = plainStep(b, op.getCell(), x, product(h, true));
    }
  }

  void lstm(int64_t t, Value x) {
    Values made = lstmStep(b, blocks(x, 4), blocks(product(h, true), 4), more);
    gates[t] = joined(ValueRange(made).take_front(4));
    cells[t] = more = made[4];
    h = made[5];
  }

  void gru(int64_t t, Value x) {
    Value bias = b.broadcast(more, {batch, hidden}, {1});
    Values made = gruStep(b, blocks(x, 3), blocks(product(h, true), 3), bias, h);
    gates[t] = joined(ValueRange(made).take_front(4));
    h = made[4];
  }

  void gruResetFirst(int64_t t, Value x) {
    Values parts = blocks(x, 3), first = gruGates(b, parts, blocks(product(h, weightsOf(0, 2), true), 2), h);
    Values last = gruState(b, parts[2], product(first[2], weightsOf(2, 1), true), first[0], h);
    gates[t] = joined({first[0], first[1], last[0]});
    cells[t] = first[2];
    h = last[1];
  }
};

/// One pass over the steps, backward: gradients of the operands of Forward.
struct Backward : Steps {
  Backward(OpBuilder &builder, RecurrenceBackwardOp op)
      : Steps(builder, op, op.getY(), op.getR(), op.getReverse()), op(op), dxs(steps), insides(steps),
        dh(b.splat(RankedTensorType::get({batch, hidden}, wide), 0)), dc(dh) {}

  RecurrenceBackwardOp op;
  Values dxs, insides; ///< by step
  Value dh, dc;

  Values run() {
    for (int64_t i = steps - 1; i >= 0; --i)
      step(i, b.add(at(op.getDy(), index(i)), dh));
    Values results = {stack(dxs, op.getDx()), cast(dh, op.getDh0())};
    if (op.getCell() == RecurrentCell::lstm)
      results.push_back(cast(dc, op.getOthers()[0]));
    if (op.getCell() == RecurrentCell::gru && !op.getOthers().empty())
      results.push_back(stack(insides, op.getOthers()[0]));
    return results;
  }

private:
  /// The value before the i-th step, of one that `states` holds after each.
  Value before(int64_t i, Value states, Value initial) {
    return i == 0 ? b.cast(initial, wide) : at(states, index(i - 1));
  }

  void step(int64_t i, Value d) {
    switch (op.getCell()) {
    case RecurrentCell::lstm:
      return lstm(i, d);
    case RecurrentCell::gru:
      return op.getOthers().empty() ? gruResetFirst(i, d) : gru(i, d);
    case RecurrentCell::tanh:
    case RecurrentCell::relu:
      Value &dx = dxs[index(i)];
      dx = plainGradient(b, op.getCell(), d, at(op.getY(), index(i)));
      dh = product(dx, false);
    }
  }

  void lstm(int64_t i, Value d) {
    int64_t t = index(i);
    if (op.getMore().size() > 3)
      dc = b.add(dc, at(op.getMore()[3], t));
    Values made = lstmGradient(b, d, blocks(at(op.getMore()[0], t), 4), at(op.getMore()[1], t), dc,
                               before(i, op.getMore()[1], op.getMore()[2]));
    dxs[t] = joined(ValueRange(made).take_front(4));
    dc = made[4];
    dh = product(dxs[t], false);
  }

  void gru(int64_t i, Value d) {
    int64_t t = index(i);
    Values made = gruGradient(b, d, blocks(at(op.getMore()[0], t), 4), before(i, op.getY(), op.getH0()));
    dxs[t] = joined(ValueRange(made).take_front(3));
    insides[t] = made[3];
    dh = b.add(made[4], product(joined({made[0], made[1], made[3]}), false));
  }

  void gruResetFirst(int64_t i, Value d) {
    int64_t t = index(i);
    Values saved = blocks(at(op.getMore()[0], t), 3);
    Value last = gruLastGradient(b, d, saved), dKept = product(last, weightsOf(2, 1), false);
    Values made = gruGatesGradient(b, d, saved, before(i, op.getY(), op.getH0()), dKept);
    Value first = joined(ValueRange(made).take_front(2));
    dxs[t] = joined({first, last});
    dh = b.add(made[2], product(first, weightsOf(0, 2), false));
  }
};

} // namespace

FailureOr<Values> RecurrenceOp::decompose(OpBuilder &builder) {
  if (failed(checkSteps(*this, getY())))
    return failure();
  return Forward(builder, *this).run();
}

FailureOr<Values> RecurrenceBackwardOp::decompose(OpBuilder &builder) {
  if (failed(checkSteps(*this, getY())))
    return failure();
  return Backward(builder, *this).run();
}
