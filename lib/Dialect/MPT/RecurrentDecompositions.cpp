// SPDX-License-Identifier: Apache-2.0
// Recurrences in GEMMs and elementwise ops, step by step. Gates, cell states and sums are FP32 or wider.
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

namespace {

using Values = SmallVector<Value>;

/// Each step becomes some dozens of ops.
constexpr int64_t mostSteps = 1 << 13;

LogicalResult checkSteps(Operation *op, Value y) {
  if (int64_t steps = tensorType(y).getDimSize(0); steps > mostSteps)
    return op->emitOpError() << "expected at most " << mostSteps << " steps where they are unrolled, got " << steps
                             << "; split the sequence";
  return success();
}

/// What both passes over the steps share.
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
  /// Block `i` of those that lie side by side.
  Value block(Value x, int64_t i, int64_t count = 1) {
    if (tensorType(x).getDimSize(1) == count * hidden)
      return x;
    return b.slice(x, {0, i * hidden}, {batch, count * hidden});
  }
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
  Value sigmoid(Value x) { return b.make<SigmoidOp>(x); }
  Value tanh(Value x) { return b.make<TanhOp>(x); }
  Value complement(Value x) { return b.sub(b.splatLike(x, 1), x); }
  /// d times the derivatives of the functions at whose results they are taken.
  Value throughSigmoid(Value d, Value y) { return b.mul(d, b.mul(y, complement(y))); }
  Value throughTanh(Value d, Value y) { return b.mul(d, complement(b.mul(y, y))); }
  Value throughRelu(Value d, Value y) { return b.select(b.compare(Predicate::gt, y, 0.0), d, b.splatLike(d, 0)); }
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
      return lstm(t, b.add(x, product(h, true)));
    case RecurrentCell::gru:
      return more ? gru(t, x, product(h, true)) : gruResetFirst(t, x);
    case RecurrentCell::tanh:
      h = tanh(b.add(x, product(h, true)));
      return;
    case RecurrentCell::relu:
      h = b.make<ReluOp>(b.add(x, product(h, true)));
      return;
    }
  }

  void lstm(int64_t t, Value sum) {
    Value i = sigmoid(block(sum, 0)), o = sigmoid(block(sum, 1)), f = sigmoid(block(sum, 2)), g = tanh(block(sum, 3));
    more = b.add(b.mul(f, more), b.mul(i, g));
    h = b.mul(o, tanh(more));
    gates[t] = b.concat({i, o, f, g}, 1);
    cells[t] = more;
  }

  void gru(int64_t t, Value x, Value s) {
    Value zr = sigmoid(b.add(block(x, 0, 2), block(s, 0, 2))), z = block(zr, 0);
    Value inside = b.add(block(s, 2), b.broadcast(more, {batch, hidden}, {1}));
    Value fresh = tanh(b.add(block(x, 2), b.mul(block(zr, 1), inside)));
    h = b.add(b.mul(complement(z), fresh), b.mul(z, h));
    gates[t] = b.concat({zr, fresh, inside}, 1);
  }

  void gruResetFirst(int64_t t, Value x) {
    Value zr = sigmoid(b.add(block(x, 0, 2), product(h, weightsOf(0, 2), true))), z = block(zr, 0);
    Value kept = b.mul(block(zr, 1), h);
    Value fresh = tanh(b.add(block(x, 2), product(kept, weightsOf(2, 1), true)));
    h = b.add(b.mul(complement(z), fresh), b.mul(z, h));
    gates[t] = b.concat({zr, fresh}, 1);
    cells[t] = kept;
  }
};

/// One pass over the steps, backward: gradients of what Forward read.
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
    int64_t t = index(i);
    switch (op.getCell()) {
    case RecurrentCell::lstm:
      return lstm(i, d);
    case RecurrentCell::gru:
      return op.getOthers().empty() ? gruResetFirst(i, d) : gru(i, d);
    case RecurrentCell::tanh:
      dxs[t] = throughTanh(d, at(op.getY(), t));
      break;
    case RecurrentCell::relu:
      dxs[t] = throughRelu(d, at(op.getY(), t));
      break;
    }
    dh = product(dxs[t], false);
  }

  void lstm(int64_t step, Value d) {
    int64_t t = index(step);
    Value saved = at(op.getMore()[0], t), cell = tanh(at(op.getMore()[1], t));
    Value i = block(saved, 0), o = block(saved, 1), f = block(saved, 2), g = block(saved, 3);
    if (op.getMore().size() > 3)
      dc = b.add(dc, at(op.getMore()[3], t));
    dc = b.add(dc, throughTanh(b.mul(d, o), cell));
    Value previous = before(step, op.getMore()[1], op.getMore()[2]);
    dxs[t] = b.concat({throughSigmoid(b.mul(dc, g), i), throughSigmoid(b.mul(d, cell), o),
                       throughSigmoid(b.mul(dc, previous), f), throughTanh(b.mul(dc, i), g)},
                      1);
    dc = b.mul(dc, f);
    dh = product(dxs[t], false);
  }

  void gru(int64_t step, Value d) {
    int64_t t = index(step);
    Value saved = at(op.getMore()[0], t), previous = before(step, op.getY(), op.getH0());
    Value z = block(saved, 0), r = block(saved, 1), fresh = block(saved, 2), inside = block(saved, 3);
    Value dFresh = throughTanh(b.mul(d, complement(z)), fresh);
    Value dz = throughSigmoid(b.mul(d, b.sub(previous, fresh)), z);
    Value dr = throughSigmoid(b.mul(dFresh, inside), r);
    insides[t] = b.mul(dFresh, r);
    dxs[t] = b.concat({dz, dr, dFresh}, 1);
    dh = b.add(b.mul(d, z), product(b.concat({dz, dr, insides[t]}, 1), false));
  }

  void gruResetFirst(int64_t step, Value d) {
    int64_t t = index(step);
    Value saved = at(op.getMore()[0], t), previous = before(step, op.getY(), op.getH0());
    Value z = block(saved, 0), r = block(saved, 1), fresh = block(saved, 2);
    Value dFresh = throughTanh(b.mul(d, complement(z)), fresh);
    Value dz = throughSigmoid(b.mul(d, b.sub(previous, fresh)), z);
    Value dKept = product(dFresh, weightsOf(2, 1), false);
    Value dzr = b.concat({dz, throughSigmoid(b.mul(dKept, previous), r)}, 1);
    dxs[t] = b.concat({dzr, dFresh}, 1);
    dh = b.add(b.add(b.mul(d, z), b.mul(dKept, r)), product(dzr, weightsOf(0, 2), false));
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
