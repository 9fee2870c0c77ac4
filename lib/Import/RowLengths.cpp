// SPDX-License-Identifier: Apache-2.0
// Rows of a recurrent layer's batch that end before its input does.
#include "RowLengths.h"

#include "ReverseSequence.h"

#include "mpt/Evaluation/Constants.h"

using namespace mlir;
using namespace mpt;

bool RowLengths::endEarly(Binder &b, unsigned i, int64_t steps) {
  if (!b.has(i))
    return false;
  ElementsAttr given = b.given(i);
  return !given || (given.getNumElements() != 0 && uniformNumber(given) != static_cast<double>(steps));
}

RowLengths::RowLengths(Binder &b, unsigned i, int64_t steps) : b(b), steps(steps) {
  Value given = b.cast(b.in(i), b.builder.getI64Type());
  auto most = static_cast<double>(steps);
  lengths = b.select(b.compare(Predicate::lt, given, most), given, b.splatLike(given, most));
}

Value RowLengths::stepNumbers(ArrayRef<int64_t> shape) const {
  return IotaOp::create(b.builder, b.loc, RankedTensorType::get(shape, b.builder.getI64Type()), b.i64(0));
}

Value RowLengths::within(Value x) const {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  Value isWithin = b.compare(Predicate::lt, stepNumbers(shape), b.broadcast(lengths, shape, {1}));
  return b.select(isWithin, x, b.splatLike(x, 0));
}

Value RowLengths::reversed(Value x) const { return reverseSequence(b, x, lengths, 1, 0); }

Value RowLengths::lastOf(Value states, Value before) const {
  ArrayRef<int64_t> shape = tensorType(before).getShape();
  Value any = b.compare(Predicate::gt, lengths, 0.0);
  Value last = b.select(any, b.add(lengths, -1.0), b.splatLike(lengths, 0));
  Value index = b.broadcast(last, {1, shape[0], shape[1]}, {1});
  Value found = b.make<GatherElementsOp>(states, index, int64_t(0));
  return b.select(b.broadcast(any, shape, {0}), b.reshape(found, shape), before);
}

Value RowLengths::atLast(Value d) const {
  SmallVector<int64_t> shape(tensorType(d).getShape());
  shape.insert(shape.begin(), steps);
  Value last = b.broadcast(b.add(lengths, -1.0), shape, {1}), all = b.broadcast(d, shape, {1, 2});
  return b.select(b.compare(Predicate::eq, stepNumbers(shape), last), all, b.splatLike(all, 0));
}

Value RowLengths::ofEmpty(Value x) const {
  Value any = b.broadcast(b.compare(Predicate::gt, lengths, 0.0), tensorType(x).getShape(), {0});
  return b.select(any, b.splatLike(x, 0), x);
}
