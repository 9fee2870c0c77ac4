// SPDX-License-Identifier: Apache-2.0
// The mask of ONNX's attention: its operand, causality, windows and padding.
#include "AttentionMask.h"

#include <limits>

using namespace mlir;
using namespace mpt;

static constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

/// `x` in the common shape of both.
Value AttentionMask::spread(Value x, Value like) {
  auto shape = b.broadcastShape(tensorType(x).getShape(), tensorType(like).getShape());
  return b.broadcastTo(x, *shape); // each broadcasts to the scores, so both do to one another
}

LogicalResult AttentionMask::readOperand() {
  int64_t keys = scores.getDimSize(3), rank = b.rank(3), given = rank ? b.shape(3)[rank - 1] : 1;
  Value mask = b.in(3);
  bool isBool = b.element(3).isInteger(1);
  if (given < keys && (given != 1 || b.version() > 23)) {
    // Keys behind the mask's end are not seen.
    SmallVector<int64_t> low(rank, 0), high(rank, 0);
    if (rank)
      high[rank - 1] = keys - given;
    if (isBool) {
      Value number = b.cast(mask, b.builder.getIntegerType(8));
      number = b.make<PadOp>(number, b.list(low), b.list(high), b.list(low), b.f64(0));
      mask = b.compare(Predicate::ne, number, 0.0);
    } else {
      mask = b.make<PadOp>(mask, b.list(low), b.list(high), b.list(low), b.f64(minusInfinity));
    }
  }
  auto shape = b.broadcastShape(tensorType(mask).getShape(), scores.getShape());
  if (failed(shape))
    return failure();
  if (ArrayRef<int64_t>(*shape) != scores.getShape())
    return b.fail() << "expected a mask that broadcasts to [" << scores.getShape() << "], got " << b.in(3).getType();
  mayBeEmpty = true;
  if (isBool)
    kept = mask;
  else
    bias = b.cast(mask, scores.getElementType());
  return success();
}

/// Causality, windows and padding: the masks that follow from the positions of queries and keys.
void AttentionMask::readPositions() {
  bool isCausal = b.intAttr("is_causal", 0) != 0, isPadded = b.has(6);
  int64_t left = b.intAttr("left_window_size", -1), right = b.intAttr("right_window_size", -1);
  if (!isCausal && !isPadded && left < 0 && right < 0)
    return;
  Type i64 = b.builder.getI64Type();
  int64_t queries = scores.getDimSize(2), keys = scores.getDimSize(3);
  SmallVector<int64_t> shape = {queries, keys};
  if (isPadded)
    shape = {scores.getDimSize(0), 1, queries, keys};
  auto grid = RankedTensorType::get(shape, i64);
  auto rank = static_cast<int64_t>(shape.size());
  Value row = IotaOp::create(b.builder, b.loc, grid, b.i64(rank - 2)),
        column = IotaOp::create(b.builder, b.loc, grid, b.i64(rank - 1));
  if (isPadded) {
    // The valid keys come first, and the queries are the last of them.
    Value valid = b.broadcast(b.cast(b.in(6), i64), shape, {0});
    keep(b.compare(Predicate::lt, column, valid));
    row = b.add(b.add(row, valid), -static_cast<double>(queries));
  } else if (past != 0) {
    row = b.add(row, static_cast<double>(past));
  }
  if (isCausal)
    keep(b.compare(Predicate::le, column, row));
  if (left >= 0)
    keep(b.compare(Predicate::ge, column, b.add(row, -static_cast<double>(left))));
  if (right >= 0)
    keep(b.compare(Predicate::le, column, b.add(row, static_cast<double>(right))));
  // Without padding each query sees itself, unless there are fewer keys than queries.
  mayBeEmpty |= isPadded || queries + past > keys;
}

LogicalResult AttentionMask::read() {
  for (StringRef name : {"left_window_size", "right_window_size"})
    if (b.intAttr(name, -1) < -1)
      return b.fail() << "expected " << name << " of -1 or more, got " << b.intAttr(name, -1);
  if (b.has(3) && (failed(b.need(4)) || failed(readOperand())))
    return failure();
  if (b.has(6) && (!b.in(6) || b.shape(6) != ArrayRef<int64_t>{scores.getDimSize(0)}))
    return b.fail() << "expected one number of keys for each of " << scores.getDimSize(0)
                    << " in the batch as operand 6";
  readPositions();
  return success();
}

Value AttentionMask::apply(Value values) {
  ArrayRef<int64_t> shape = scores.getShape();
  if (bias)
    values = b.add(values, b.broadcastTo(bias, shape));
  if (kept)
    values = b.select(b.broadcastTo(kept, shape), values, b.splatLike(values, minusInfinity));
  return values;
}

Value AttentionMask::findEmptyRows() {
  if (!mayBeEmpty || (!kept && !bias))
    return {};
  Type element = scores.getElementType();
  Value seen = bias;
  if (kept) {
    Value open = bias ? spread(bias, kept) : b.splat(tensorType(kept).clone(element), 0);
    Value which = bias ? spread(kept, bias) : kept;
    seen = b.select(which, open, b.splatLike(open, minusInfinity));
  }
  SmallVector<int64_t> shape(tensorType(seen).getShape());
  if (shape.empty())
    return b.broadcastTo(b.compare(Predicate::eq, seen, minusInfinity), scores.getShape());
  int64_t last = static_cast<int64_t>(shape.size()) - 1;
  shape[last] = 1;
  Value best = b.reshape(b.reduce(ReduceKind::max, seen, {last}), shape);
  return b.broadcastTo(b.compare(Predicate::eq, best, minusInfinity), scores.getShape());
}
