// SPDX-License-Identifier: Apache-2.0
// Types of the recurrent family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

static int64_t gatesOf(RecurrentCell cell) {
  return cell == RecurrentCell::lstm ? 4 : cell == RecurrentCell::gru ? 3 : 1;
}

/// Extents of a recurrence.
namespace {
struct Extents {
  int64_t steps, batch, hidden;
};
} // namespace

static LogicalResult checkShape(std::optional<Location> loc, StringRef rule, StringRef what, Value value,
                                ArrayRef<int64_t> shape) {
  if (tensorType(value).getShape() != shape)
    return emitOptionalError(loc, rule, ": expected ", what, " of shape [", shape, "], got ", value.getType());
  return success();
}

static LogicalResult checkCount(std::optional<Location> loc, StringRef rule, RecurrentCell cell, size_t least,
                                size_t most, size_t got) {
  if (got < least || got > most)
    return emitOptionalError(loc, rule, ": expected ", least, " further operands for cell ", stringifyEnum(cell),
                             ", got ", got);
  return success();
}

MPT_INFER(RecurrenceOp) {
  RankedTensorType x = tensorType(adaptor.getX());
  RecurrentCell cell = adaptor.getCell();
  int64_t gates = gatesOf(cell);
  if (x.getRank() != 3)
    return emitOptionalError(loc, "C1: expected x [steps, batch, gates * hidden], got ", x);
  if (x.getDimSize(2) % gates != 0)
    return emitOptionalError(loc, "C2: expected ", gates, " gates in the last extent of x, got ", x);
  Extents e{x.getDimSize(0), x.getDimSize(1), x.getDimSize(2) / gates};
  ValueRange more = adaptor.getMore();
  bool isLstm = cell == RecurrentCell::lstm, isGru = cell == RecurrentCell::gru;
  if (failed(checkShape(loc, "C3", "recurrent weights", adaptor.getR(), {gates * e.hidden, e.hidden})) ||
      failed(checkShape(loc, "C4", "h0", adaptor.getH0(), {e.batch, e.hidden})) ||
      failed(checkCount(loc, "C5", cell, isLstm, isLstm || isGru, more.size())) ||
      (isLstm && failed(checkShape(loc, "C5", "c0", more[0], {e.batch, e.hidden}))) ||
      (isGru && !more.empty() && failed(checkShape(loc, "C5", "a bias", more[0], {e.hidden}))))
    return failure();
  types.push_back(x.clone({e.steps, e.batch, e.hidden}));
  bool resetFirst = isGru && more.empty();
  if (isLstm || isGru)
    types.push_back(x.clone({e.steps, e.batch, (resetFirst ? 3 : 4) * e.hidden}));
  if (isLstm || resetFirst)
    types.push_back(x.clone({e.steps, e.batch, e.hidden}).clone(wideType(x.getElementType())));
  return success();
}

MPT_INFER(RecurrenceBackwardOp) {
  RankedTensorType dy = tensorType(adaptor.getDy());
  RecurrentCell cell = adaptor.getCell();
  if (dy.getRank() != 3 || tensorType(adaptor.getY()).getShape() != dy.getShape())
    return emitOptionalError(loc, "C1: expected dy of y's shape [steps, batch, hidden], got ", dy);
  Extents e{dy.getDimSize(0), dy.getDimSize(1), dy.getDimSize(2)};
  int64_t gates = gatesOf(cell);
  bool isLstm = cell == RecurrentCell::lstm, isGru = cell == RecurrentCell::gru;
  ValueRange more = adaptor.getMore();
  // With reset first, r * state is saved on its own.
  bool resetFirst = isGru && !more.empty() && tensorType(more[0]).getShape().back() == 3 * e.hidden;
  SmallVector<int64_t> state = {e.batch, e.hidden}, all = {e.steps, e.batch, e.hidden},
                       saved = {e.steps, e.batch, (resetFirst ? 3 : 4) * e.hidden};
  if (failed(checkShape(loc, "C2", "h0", adaptor.getH0(), state)) ||
      failed(checkShape(loc, "C3", "recurrent weights", adaptor.getR(), {gates * e.hidden, e.hidden})) ||
      failed(checkCount(loc, "C4", cell, isLstm ? 3 : isGru, isLstm ? 4 : isGru, more.size())) ||
      (!more.empty() && failed(checkShape(loc, "C4", "saved gates", more[0], saved))) ||
      (isLstm && failed(checkShape(loc, "C4", "cell states", more[1], all))) ||
      (isLstm && failed(checkShape(loc, "C4", "c0", more[2], state))) ||
      (more.size() > 3 && failed(checkShape(loc, "C4", "gradients of cell states", more[3], all))))
    return failure();
  types.push_back(dy.clone({e.steps, e.batch, gates * e.hidden}));
  types.push_back(dy.clone(state));
  if (isLstm)
    types.push_back(dy.clone(state).clone(wideType(dy.getElementType())));
  if (isGru && !resetFirst)
    types.push_back(dy.clone(all));
  return success();
}

MPT_SAME_SHAPES(RecurrenceOp)
MPT_SAME_SHAPES(RecurrenceBackwardOp)
