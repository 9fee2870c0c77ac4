// SPDX-License-Identifier: Apache-2.0
// Formulas of ONNX's LSTM, GRU and RNN with their default activations.
#include "mpt/Dialect/MPT/RecurrentCells.h"

using namespace mlir;
using namespace mpt;

static Value sigmoid(GraphBuilder &b, Value x) { return b.make<SigmoidOp>(x); }
static Value tanh(GraphBuilder &b, Value x) { return b.make<TanhOp>(x); }
static Value complement(GraphBuilder &b, Value x) { return b.sub(b.splatLike(x, 1), x); }
/// d times the derivatives of the functions at whose results they are taken.
static Value throughSigmoid(GraphBuilder &b, Value d, Value y) { return b.mul(d, b.mul(y, complement(b, y))); }
static Value throughTanh(GraphBuilder &b, Value d, Value y) { return b.mul(d, complement(b, b.mul(y, y))); }

CellValues mpt::lstmStep(GraphBuilder &b, ValueRange x, ValueRange s, Value c) {
  Value i = sigmoid(b, b.add(x[0], s[0])), o = sigmoid(b, b.add(x[1], s[1])), f = sigmoid(b, b.add(x[2], s[2]));
  Value g = tanh(b, b.add(x[3], s[3]));
  Value cell = b.add(b.mul(f, c), b.mul(i, g));
  return {i, o, f, g, cell, b.mul(o, tanh(b, cell))};
}

static Value mixed(GraphBuilder &b, Value z, Value fresh, Value h) {
  return b.add(b.mul(complement(b, z), fresh), b.mul(z, h));
}

CellValues mpt::gruStep(GraphBuilder &b, ValueRange x, ValueRange s, Value bias, Value h) {
  Value z = sigmoid(b, b.add(x[0], s[0])), r = sigmoid(b, b.add(x[1], s[1])), inside = b.add(s[2], bias);
  Value fresh = tanh(b, b.add(x[2], b.mul(r, inside)));
  return {z, r, fresh, inside, mixed(b, z, fresh, h)};
}

CellValues mpt::gruGates(GraphBuilder &b, ValueRange x, ValueRange s, Value h) {
  Value z = sigmoid(b, b.add(x[0], s[0])), r = sigmoid(b, b.add(x[1], s[1]));
  return {z, r, b.mul(r, h)};
}

CellValues mpt::gruState(GraphBuilder &b, Value x, Value s, Value z, Value h) {
  Value fresh = tanh(b, b.add(x, s));
  return {fresh, mixed(b, z, fresh, h)};
}

Value mpt::plainStep(GraphBuilder &b, RecurrentCell cell, Value x, Value s) {
  Value sum = b.add(x, s);
  return cell == RecurrentCell::relu ? b.make<ReluOp>(sum) : tanh(b, sum);
}

CellValues mpt::lstmGradient(GraphBuilder &b, Value d, ValueRange gates, Value c, Value dc, Value cellBefore) {
  Value i = gates[0], o = gates[1], f = gates[2], g = gates[3], cell = tanh(b, c);
  dc = b.add(dc, throughTanh(b, b.mul(d, o), cell));
  return {throughSigmoid(b, b.mul(dc, g), i), throughSigmoid(b, b.mul(d, cell), o),
          throughSigmoid(b, b.mul(dc, cellBefore), f), throughTanh(b, b.mul(dc, i), g), b.mul(dc, f)};
}

CellValues mpt::gruGradient(GraphBuilder &b, Value d, ValueRange gates, Value before) {
  Value z = gates[0], r = gates[1], inside = gates[3];
  Value dFresh = gruLastGradient(b, d, gates);
  return {throughSigmoid(b, b.mul(d, b.sub(before, gates[2])), z), throughSigmoid(b, b.mul(dFresh, inside), r), dFresh,
          b.mul(dFresh, r), b.mul(d, z)};
}

Value mpt::gruLastGradient(GraphBuilder &b, Value d, ValueRange gates) {
  return throughTanh(b, b.mul(d, complement(b, gates[0])), gates[2]);
}

CellValues mpt::gruGatesGradient(GraphBuilder &b, Value d, ValueRange gates, Value before, Value dKept) {
  Value z = gates[0], r = gates[1];
  return {throughSigmoid(b, b.mul(d, b.sub(before, gates[2])), z), throughSigmoid(b, b.mul(dKept, before), r),
          b.add(b.mul(d, z), b.mul(dKept, r))};
}

Value mpt::plainGradient(GraphBuilder &b, RecurrentCell cell, Value d, Value y) {
  if (cell == RecurrentCell::relu)
    return b.select(b.compare(Predicate::gt, y, 0.0), d, b.splatLike(d, 0));
  return throughTanh(b, d, y);
}
