// SPDX-License-Identifier: Apache-2.0
// Gradient operators of ONNX Runtime Training (com.microsoft) of gathers, slices and joins, and sums over axes.
#include "RuntimeGradients.h"

#include "Join.h"

using namespace mlir;
using namespace mpt;

/// The result's type from a constant shape.
static FailureOr<RankedTensorType> shapedLike(Binder &b, unsigned i, Value like) {
  FailureOr<SmallVector<int64_t>> shape = b.ints(i, "shape");
  if (failed(shape) || failed(b.checkShape(*shape)))
    return failure();
  return RankedTensorType::get(*shape, tensorType(like).getElementType());
}

static LogicalResult importGatherGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 0, b.in(2));
  if (failed(type))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), type->getRank());
  if (failed(axis))
    return failure();
  SmallVector<int64_t> gathered(type->getShape().take_front(*axis));
  llvm::append_range(gathered, b.shape(1));
  llvm::append_range(gathered, type->getShape().drop_front(*axis + 1));
  if (failed(expectShape(b, 2, gathered)))
    return failure();
  return b.done(b.make<ScatterAddOp>(*type, b.in(1), b.in(2), b.i64(*axis)));
}

static LogicalResult importGatherElementsGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 1, b.in(0));
  if (failed(type))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), type->getRank());
  if (failed(axis) || failed(b.checkElementIndices(type->getShape(), b.shape(2), *axis)) ||
      failed(expectShape(b, 0, b.shape(2))))
    return failure();
  return b.done(b.make<ScatterElementsOp>(b.splat(*type, 0.0), b.in(2), b.in(0), *axis, ScatterKind::add));
}

static LogicalResult importGatherNDGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 0, b.in(2));
  if (failed(type))
    return failure();
  ArrayRef<int64_t> x = type->getShape(), indices = b.shape(1);
  int64_t batch = b.intAttr("batch_dims", 0), rank = type->getRank();
  if (batch < 0 || batch >= std::min(rank, b.rank(1)) || indices.back() < 1 || indices.back() > rank - batch ||
      indices.take_front(batch) != x.take_front(batch))
    return b.fail() << "expected index tuples that fit [" << x << "], got " << b.in(1).getType() << " with batch_dims "
                    << batch;
  SmallVector<int64_t> gathered(indices.drop_back());
  llvm::append_range(gathered, x.drop_front(batch + indices.back()));
  if (failed(expectShape(b, 2, gathered)))
    return failure();
  return b.done(b.make<ScatterNDOp>(b.splat(*type, 0.0), b.in(1), b.in(2), batch, ScatterKind::add));
}

/// Result 1 has each input's extent.
static LogicalResult importConcatTraining(Binder &b) {
  FailureOr<int64_t> axis = joinOperands(b);
  if (failed(axis))
    return failure();
  SmallVector<int64_t> lengths;
  for (unsigned i = 0; i < b.operandCount(); ++i)
    lengths.push_back(b.shape(i)[*axis]);
  return b.wants(1) ? b.set(1, b.indices(lengths)) : success();
}

static LogicalResult importSplitTraining(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  FailureOr<SmallVector<int64_t>> lengths = b.ints(1, "lengths");
  if (failed(axis) || failed(lengths))
    return failure();
  int64_t at = 0;
  for (int64_t length : *lengths)
    if (length < 0 || length > b.shape(0)[*axis] - at || lengths->size() != b.resultCount())
      return b.fail() << "expected " << b.resultCount() << " lengths within " << b.shape(0)[*axis] << ", got ["
                      << *lengths << "]";
    else
      at += length;
  SmallVector<int64_t> starts(b.rank(0), 0), sizes(b.shape(0));
  for (auto [i, length] : llvm::enumerate(*lengths)) {
    sizes[*axis] = length;
    if (failed(b.set(i, b.slice(b.in(0), starts, sizes))))
      return failure();
    starts[*axis] += length;
  }
  return success();
}

static LogicalResult importSliceGrad(Binder &b) {
  FailureOr<RankedTensorType> type = shapedLike(b, 1, b.in(0));
  FailureOr<SmallVector<int64_t>> starts = b.ints(2, "starts"), ends = b.ints(3, "ends");
  if (failed(type) || failed(starts) || failed(ends))
    return failure();
  SmallVector<int64_t> axes = axisRange(0, starts->size()), steps(starts->size(), 1);
  for (auto [i, list] : {std::pair(4u, &axes), std::pair(5u, &steps)})
    if (b.has(i)) {
      FailureOr<SmallVector<int64_t>> given = b.ints(i, i == 4 ? "axes" : "steps");
      if (failed(given))
        return failure();
      *list = *given;
    }
  int64_t rank = type->getRank();
  if (axes.size() != starts->size() || steps.size() != starts->size() || b.rank(0) != rank)
    return b.fail() << "expected as many starts, axes and steps, and dY of the shape's rank";
  SmallVector<int64_t> low(rank, 0), high(rank, 0), interior(rank, 0), reversed;
  for (int64_t i = 0; i < rank; ++i)
    high[i] = type->getDimSize(i) - b.shape(0)[i];
  for (auto [start, given, step] : llvm::zip_equal(*starts, axes, steps)) {
    FailureOr<int64_t> axis = b.axis(given, rank);
    if (failed(axis))
      return failure();
    int64_t extent = type->getDimSize(*axis), count = b.shape(0)[*axis];
    if (step == 0 || std::abs(step) > std::max<int64_t>(extent, 1))
      return b.fail() << "expected a step within the extent, got " << step;
    int64_t first =
        std::clamp<int64_t>(start < 0 ? start + extent : start, 0, std::max<int64_t>(extent - (step < 0), 0));
    int64_t reach = (count - 1) * std::abs(step);
    if (step < 0) {
      reversed.push_back(*axis);
      first -= reach;
    }
    if (count > 0 && (first < 0 || first + reach >= extent))
      return b.fail() << "expected a slice within extent " << extent << ", got " << count << " from " << first;
    low[*axis] = first;
    interior[*axis] = std::abs(step) - 1;
    high[*axis] = extent - first - reach - 1;
  }
  Value dy = b.in(0);
  if (!reversed.empty())
    dy = b.make<ReverseOp>(dy, b.list(reversed));
  return b.done(b.make<PadOp>(dy, b.list(low), b.list(high), b.list(interior), b.f64(0)));
}

static LogicalResult importReduceSumTraining(Binder &b) {
  FailureOr<SmallVector<int64_t>> given = b.ints(1, "axes");
  if (failed(given))
    return failure();
  FailureOr<SmallVector<int64_t>> axes = b.axes(*given, b.rank(0));
  if (failed(axes))
    return failure();
  // Read in either case: attributes that no rule asks for are refused.
  if (bool isNoop = b.intAttr("noop_with_empty_axes", 0) != 0; isNoop && axes->empty())
    return b.done(b.in(0));
  if (axes->empty())
    *axes = axisRange(0, b.rank(0));
  SmallVector<int64_t> shape(b.shape(0));
  for (int64_t axis : *axes)
    shape[axis] = 1;
  Value sum = b.sum(b.in(0), *axes);
  return b.done(b.intAttr("keepdims", 1) ? b.reshape(sum, shape) : sum);
}

/// The axes over which a gradient is summed to come back to each of two shapes that broadcast.
static LogicalResult importBroadcastGradientArgs(Binder &b) {
  FailureOr<SmallVector<int64_t>> shapes[2] = {b.ints(0, "shape"), b.ints(1, "shape")};
  if (failed(shapes[0]) || failed(shapes[1]))
    return failure();
  auto common = b.broadcastShape(*shapes[0], *shapes[1]);
  if (failed(common))
    return failure();
  for (unsigned i : {0u, 1u}) {
    SmallVector<int64_t> axes;
    int64_t missing = common->size() - shapes[i]->size();
    for (int64_t axis = common->size(); axis-- > 0;)
      if (axis < missing || ((*shapes[i])[axis - missing] == 1 && (*common)[axis] != 1))
        axes.push_back(axis);
    if (b.wants(i) && failed(b.set(i, b.indices(axes))))
      return failure();
  }
  return success();
}

void mpt::registerMovementGradients(RuleTable &t) {
  constexpr StringLiteral ms = "com.microsoft";
  t.onDomain(ms, "GatherGrad", takes(3, importGatherGrad), NumericClass::Reduction);
  t.onDomain(ms, "GatherElementsGrad", takes(3, importGatherElementsGrad), NumericClass::Reduction);
  t.onDomain(ms, "GatherNDGrad", takes(3, importGatherNDGrad), NumericClass::Reduction);
  t.onDomain(ms, "ConcatTraining", importConcatTraining, NumericClass::Movement);
  t.onDomain(ms, "SplitTraining", takes(2, importSplitTraining), NumericClass::Movement);
  t.onDomain(ms, "SliceGrad", takes(4, importSliceGrad), NumericClass::Movement);
  t.onDomain(ms, "ReduceSumTraining", takes(2, importReduceSumTraining), NumericClass::Reduction);
  t.onDomain(ms, "BroadcastGradientArgs", importBroadcastGradientArgs, NumericClass::Pinned);
}
