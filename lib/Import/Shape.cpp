// SPDX-License-Identifier: Apache-2.0
// Shape ops: movement of data, and the integer arithmetic on shapes that constant evaluation removes.
#include "Join.h"
#include "Padding.h"
#include "Ranges.h"
#include "ReverseSequence.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mpt;

static LogicalResult importIdentity(Binder &b) { return b.done(b.in(0)); }

static LogicalResult importConstant(Binder &b) {
  auto vector = [&](auto values, Type element) {
    auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, element);
    return b.constant(DenseElementsAttr::get(type, values));
  };
  if (auto value = dyn_cast_or_null<ElementsAttr>(b.attr("value")))
    return b.done(b.constant(value));
  if (auto value = dyn_cast_or_null<IntegerAttr>(b.attr("value_int")))
    return b.done(
        b.constant(DenseElementsAttr::get(RankedTensorType::get({}, b.builder.getI64Type()), value.getInt())));
  if (auto value = dyn_cast_or_null<FloatAttr>(b.attr("value_float")))
    return b.done(b.scalar(b.builder.getF32Type(), value.getValueAsDouble()));
  if (auto values = dyn_cast_or_null<DenseI64ArrayAttr>(b.attr("value_ints")))
    return b.done(vector(values.asArrayRef(), b.builder.getI64Type()));
  if (auto values = dyn_cast_or_null<DenseF32ArrayAttr>(b.attr("value_floats")))
    return b.done(vector(values.asArrayRef(), b.builder.getF32Type()));
  return b.fail() << "expected a tensor, numbers or a list of numbers; strings and sparse tensors are not supported";
}

static LogicalResult importShape(Binder &b) {
  int64_t rank = b.rank(0);
  auto bound = [&](int64_t value) { return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank); };
  int64_t start = bound(b.intAttr("start", 0)), end = bound(b.intAttr("end", rank));
  return b.done(b.indices(b.shape(0).slice(start, std::max<int64_t>(end - start, 0))));
}

static LogicalResult importSize(Binder &b) {
  auto type = RankedTensorType::get({}, b.builder.getI64Type());
  return b.done(b.constant(DenseElementsAttr::get(type, tensorType(b.in(0)).getNumElements())));
}

static LogicalResult importConstantOfShape(Binder &b) {
  FailureOr<SmallVector<int64_t>> shape = b.ints(0, "shape");
  if (failed(shape) || failed(b.checkShape(*shape)))
    return failure();
  auto value = dyn_cast_or_null<DenseElementsAttr>(b.attr("value"));
  if (!value)
    return b.done(b.splat(RankedTensorType::get(*shape, b.builder.getF32Type()), 0));
  if (value.getNumElements() != 1)
    return b.fail() << "expected one element as 'value', got " << value.getNumElements();
  auto type = RankedTensorType::get(*shape, value.getElementType());
  return b.done(b.constant(DenseElementsAttr::get(type, *value.getValues<Attribute>().begin())));
}

static LogicalResult importReshape(Binder &b) {
  FailureOr<SmallVector<int64_t>> shape = b.ints(1, "shape");
  if (failed(shape))
    return failure();
  bool allowZero = b.intAttr("allowzero", 0);
  int64_t count = tensorType(b.in(0)).getNumElements(), known = 1, open = -1;
  for (auto [i, extent] : llvm::enumerate(*shape)) {
    if (extent == 0 && !allowZero) {
      if (static_cast<int64_t>(i) >= b.rank(0))
        return b.fail() << "expected 0 only where the input has a dimension to copy, got it at position " << i;
      extent = b.shape(0)[i];
    }
    if (extent == -1 && open < 0)
      open = i;
    else if (extent < 0 || llvm::MulOverflow(known, extent, known))
      return b.fail() << "expected extents with at most one -1, got [" << *shape << "]";
  }
  if (open >= 0)
    (*shape)[open] = known ? count / known : 0;
  if (open >= 0 ? known * (*shape)[open] != count : known != count)
    return b.fail() << "expected a shape of " << count << " elements, got [" << *shape << "]";
  return b.done(b.reshape(b.in(0), *shape));
}

static LogicalResult importFlatten(Binder &b) {
  int64_t rank = b.rank(0), axis = b.intAttr("axis", 1);
  if (axis < -rank || axis > rank)
    return b.fail() << "expected an axis from " << -rank << " to " << rank << ", got " << axis;
  axis += axis < 0 ? rank : 0;
  int64_t outer = 1, inner = 1;
  for (int64_t i = 0; i < rank; ++i)
    (i < axis ? outer : inner) *= b.shape(0)[i];
  return b.done(b.reshape(b.in(0), {outer, inner}));
}

/// The axes of Squeeze and Unsqueeze: an attribute until opset 12, then an operand.
static FailureOr<std::optional<SmallVector<int64_t>>> squeezeAxes(Binder &b) {
  if (b.version() < 13 && b.attr("axes"))
    return std::make_optional(b.intsAttr("axes"));
  if (!b.has(1))
    return std::optional<SmallVector<int64_t>>();
  FailureOr<SmallVector<int64_t>> axes = b.ints(1, "axes");
  if (failed(axes))
    return failure();
  return std::make_optional(*axes);
}

static LogicalResult importSqueeze(Binder &b) {
  auto given = squeezeAxes(b);
  if (failed(given))
    return failure();
  SmallVector<int64_t> axes, shape;
  if (*given) {
    auto checked = b.axes(**given, b.rank(0));
    if (failed(checked))
      return failure();
    axes = *checked;
  }
  for (auto [i, extent] : llvm::enumerate(b.shape(0))) {
    bool drop = *given ? llvm::is_contained(axes, static_cast<int64_t>(i)) : extent == 1;
    if (drop && extent != 1)
      return b.fail() << "expected extent 1 on axis " << i << ", got " << extent;
    if (!drop)
      shape.push_back(extent);
  }
  return b.done(b.reshape(b.in(0), shape));
}

static LogicalResult importUnsqueeze(Binder &b) {
  auto given = squeezeAxes(b);
  if (failed(given))
    return failure();
  if (!*given)
    return b.fail() << "expected axes, got none";
  int64_t rank = b.rank(0) + (*given)->size();
  auto axes = b.axes(**given, rank);
  if (failed(axes))
    return failure();
  SmallVector<int64_t> shape(b.shape(0));
  for (int64_t axis : *axes)
    shape.insert(shape.begin() + axis, 1);
  return b.done(b.reshape(b.in(0), shape));
}

static LogicalResult importTranspose(Binder &b) {
  int64_t rank = b.rank(0);
  SmallVector<int64_t> reversed(llvm::reverse(axisRange(0, rank)));
  SmallVector<int64_t> permutation = b.intsAttr("perm", reversed);
  SmallVector<int64_t> sorted(permutation);
  llvm::sort(sorted);
  if (sorted != axisRange(0, rank))
    return b.fail() << "expected a permutation of " << rank << " axes, got [" << permutation << "]";
  return b.done(b.transpose(b.in(0), permutation));
}

FailureOr<int64_t> mpt::joinOperands(Binder &b) {
  if (failed(b.need(1)) || failed(b.need(b.operandCount())))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis))
    return failure();
  SmallVector<Value> inputs;
  for (unsigned i = 0; i < b.operandCount(); ++i) {
    bool same = b.rank(i) == b.rank(0) && b.element(i) == b.element(0);
    for (int64_t d = 0; same && d < b.rank(0); ++d)
      same = d == *axis || b.shape(i)[d] == b.shape(0)[d];
    if (!same)
      return b.fail() << "expected operands that differ on axis " << *axis << " alone, got " << b.in(0).getType()
                      << " and " << b.in(i).getType();
    if (b.shape(i)[*axis] != 0)
      inputs.push_back(b.in(i));
  }
  Value joined = inputs.empty() ? b.in(0) : inputs.size() == 1 ? inputs.front() : b.concat(inputs, *axis);
  return failed(b.done(joined)) ? FailureOr<int64_t>() : axis;
}

static LogicalResult importConcat(Binder &b) { return joinOperands(b); }

static LogicalResult importExpand(Binder &b) {
  FailureOr<SmallVector<int64_t>> wanted = b.ints(1, "shape");
  if (failed(wanted) || failed(b.checkShape(*wanted)))
    return failure();
  auto shape = b.broadcastShape(b.shape(0), *wanted);
  if (failed(shape) || failed(b.checkShape(*shape)))
    return failure();
  return b.done(b.broadcastTo(b.in(0), *shape));
}

static LogicalResult importTile(Binder &b) {
  FailureOr<SmallVector<int64_t>> repeats = b.ints(1, "repeats");
  if (failed(repeats))
    return failure();
  int64_t rank = b.rank(0);
  if (static_cast<int64_t>(repeats->size()) != rank)
    return b.fail() << "expected " << rank << " repeats, got " << repeats->size();
  // [a, b] -> [1, a, 1, b] -> [r, a, s, b] -> [r a, s b]
  SmallVector<int64_t> repeated, dims, shape;
  for (int64_t i = 0; i < rank; ++i) {
    repeated.append({(*repeats)[i], b.shape(0)[i]});
    dims.push_back(2 * i + 1);
  }
  if (failed(b.checkShape(repeated)))
    return failure();
  for (int64_t i = 0; i < rank; ++i)
    shape.push_back(repeated[2 * i] * repeated[2 * i + 1]);
  return b.done(b.reshape(b.broadcast(b.in(0), repeated, dims), shape));
}

/// x[start : end : step] along `axis`, with NumPy's clamping.
static FailureOr<Value> sliceAxis(Binder &b, Value x, int64_t axis, int64_t start, int64_t end, int64_t step) {
  int64_t extent = tensorType(x).getDimSize(axis);
  if (step == 0 || step == std::numeric_limits<int64_t>::min())
    return b.fail() << "expected steps other than 0, got " << step;
  auto clamp = [&](int64_t value, int64_t low, int64_t high) {
    value = value < 0 ? value + extent : value;
    return std::clamp(value, low, high);
  };
  int64_t from = step > 0 ? clamp(start, 0, extent) : clamp(start, 0, extent - 1);
  int64_t to = step > 0 ? clamp(end, 0, extent) : clamp(end, -1, extent - 1);
  int64_t span = step > 0 ? to - from : from - to;
  int64_t stride = step > 0 ? step : -step;
  int64_t size = span > 0 && extent > 0 ? (span - 1) / stride + 1 : 0;
  if (step < 0) {
    x = b.make<ReverseOp>(x, ArrayRef<int64_t>{axis});
    from = extent - 1 - from;
  }
  RankedTensorType type = tensorType(x);
  SmallVector<int64_t> starts(type.getRank(), 0), sizes(type.getShape()), strides(type.getRank(), 1);
  starts[axis] = size ? from : 0;
  sizes[axis] = size;
  strides[axis] = size > 1 ? stride : 1;
  if (from == 0 && size == extent && strides[axis] == 1)
    return x;
  return b.slice(x, starts, sizes, strides);
}

static LogicalResult importSlice(Binder &b) {
  SmallVector<int64_t> starts, ends, axes, steps;
  if (b.version() < 10) {
    starts = b.intsAttr("starts");
    ends = b.intsAttr("ends");
    axes = b.intsAttr("axes", axisRange(0, starts.size()));
  } else {
    auto read = [&](unsigned i, StringRef what, SmallVector<int64_t> &values) -> LogicalResult {
      FailureOr<SmallVector<int64_t>> given = b.ints(i, what);
      if (succeeded(given))
        values = *given;
      return success(succeeded(given));
    };
    if (failed(b.need(3)) || failed(read(1, "starts", starts)) || failed(read(2, "ends", ends)))
      return failure();
    axes = axisRange(0, starts.size());
    if ((b.has(3) && failed(read(3, "axes", axes))) || (b.has(4) && failed(read(4, "steps", steps))))
      return failure();
  }
  steps.resize(steps.empty() ? starts.size() : steps.size(), 1);
  if (starts.size() != ends.size() || axes.size() != starts.size() || steps.size() != starts.size())
    return b.fail() << "expected as many starts, ends, axes and steps, got " << starts.size() << ", " << ends.size()
                    << ", " << axes.size() << " and " << steps.size();
  Value x = b.in(0);
  for (auto [start, end, given, step] : llvm::zip_equal(starts, ends, axes, steps)) {
    FailureOr<int64_t> axis = b.axis(given, b.rank(0));
    if (failed(axis))
      return failure();
    FailureOr<Value> next = sliceAxis(b, x, *axis, start, end, step);
    if (failed(next))
      return failure();
    x = *next;
  }
  return b.done(x);
}

static LogicalResult importSplit(Binder &b) {
  auto axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis))
    return failure();
  b.ignore({"num_outputs"}); // the results are counted
  int64_t extent = b.shape(0)[*axis], count = b.resultCount();
  SmallVector<int64_t> sizes = b.version() < 13 ? b.intsAttr("split") : SmallVector<int64_t>();
  if (b.version() >= 13 && b.has(1)) {
    FailureOr<SmallVector<int64_t>> given = b.ints(1, "split");
    if (failed(given))
      return failure();
    sizes = *given;
  }
  if (sizes.empty()) {
    int64_t chunk = (extent + count - 1) / count;
    for (int64_t i = 0, left = extent; i < count; ++i, left -= chunk)
      sizes.push_back(std::clamp<int64_t>(left, 0, chunk));
  }
  int64_t total = 0;
  for (int64_t size : sizes)
    total = size < 0 || size > extent ? extent + 1 : std::min(total + size, extent + 1);
  if (static_cast<int64_t>(sizes.size()) != count || total != extent)
    return b.fail() << "expected " << count << " sizes that add up to " << extent << ", got [" << sizes << "]";
  int64_t offset = 0;
  for (auto [i, size] : llvm::enumerate(sizes)) {
    FailureOr<Value> part = sliceAxis(b, b.in(0), *axis, offset, offset + size, 1);
    if (failed(part) || failed(b.set(i, *part)))
      return failure();
    offset += size;
  }
  return success();
}

static LogicalResult depthSpace(Binder &b, bool toSpace) {
  if (failed(b.need(1)))
    return failure();
  int64_t s = b.intAttr("blocksize", 0);
  if (b.rank(0) != 4 || s < 1 || s > (1 << 16))
    return b.fail() << "expected an N, C, H, W tensor and a positive blocksize, got rank " << b.rank(0) << " and " << s;
  int64_t n = b.shape(0)[0], c = b.shape(0)[1], h = b.shape(0)[2], w = b.shape(0)[3];
  if (toSpace ? c % (s * s) != 0 : (h % s != 0 || w % s != 0))
    return b.fail() << "expected extents divisible by blocksize " << s << ", got [" << b.shape(0) << "]";
  if (failed(b.checkShape({n, h, w, s, s})))
    return failure();
  StringRef mode = b.stringAttr("mode", "DCR");
  if (mode != "DCR" && mode != "CRD")
    return b.fail() << "expected mode DCR or CRD, got '" << mode << "'";
  bool columnRow = mode == "CRD";
  if (!toSpace) {
    Value split = b.reshape(b.in(0), {n, c, h / s, s, w / s, s});
    SmallVector<int64_t> order =
        columnRow ? SmallVector<int64_t>{0, 1, 3, 5, 2, 4} : SmallVector<int64_t>{0, 3, 5, 1, 2, 4};
    return b.done(b.reshape(b.transpose(split, order), {n, c * s * s, h / s, w / s}));
  }
  int64_t k = c / (s * s);
  Value split = columnRow ? b.reshape(b.in(0), {n, k, s, s, h, w}) : b.reshape(b.in(0), {n, s, s, k, h, w});
  SmallVector<int64_t> order =
      columnRow ? SmallVector<int64_t>{0, 1, 4, 2, 5, 3} : SmallVector<int64_t>{0, 3, 4, 1, 5, 2};
  return b.done(b.reshape(b.transpose(split, order), {n, k, h * s, w * s}));
}

static LogicalResult importDepthToSpace(Binder &b) { return depthSpace(b, true); }
static LogicalResult importSpaceToDepth(Binder &b) { return depthSpace(b, false); }

Value mpt::reverseSequence(Binder &b, Value x, Value lengths, int64_t batch, int64_t time) {
  ArrayRef<int64_t> shape = tensorType(x).getShape();
  auto type = RankedTensorType::get(shape, b.builder.getI64Type());
  Value at = IotaOp::create(b.builder, b.loc, type, b.i64(time));
  Value length = b.broadcast(b.cast(lengths, b.builder.getI64Type()), shape, {batch});
  Value reversed = b.add(b.sub(length, at), -1.0);
  return b.make<GatherElementsOp>(x, b.select(b.compare(Predicate::lt, at, length), reversed, at), time);
}

static LogicalResult importReverseSequence(Binder &b) {
  int64_t batch = b.intAttr("batch_axis", 1), time = b.intAttr("time_axis", 0);
  if (b.rank(0) < 2 || batch < 0 || time < 0 || batch > 1 || batch + time != 1 || b.rank(1) != 1 ||
      b.shape(1)[0] != b.shape(0)[batch])
    return b.fail() << "expected batch_axis and time_axis 0 and 1 and one length for each of the batch, got axes "
                    << batch << " and " << time << " with lengths " << b.in(1).getType();
  return b.done(reverseSequence(b, b.in(0), b.in(1), batch, time));
}

void mpt::addShapeRules(RuleTable &t) {
  t.on("Identity", 1, takes(1, importIdentity), NumericClass::Movement);
  t.on("Constant", 1, importConstant, NumericClass::Movement);
  t.on("Shape", 1, takes(1, importShape), {NumericClass::Movement, Arithmetic::Counts});
  t.on("Size", 1, takes(1, importSize), {NumericClass::Movement, Arithmetic::Counts});
  t.on("ConstantOfShape", 9, importConstantOfShape, NumericClass::Movement);
  t.on("Reshape", 5, takes(2, importReshape), NumericClass::Movement);
  t.on("Flatten", 1, takes(1, importFlatten), NumericClass::Movement);
  t.on("Squeeze", 1, takes(1, importSqueeze), NumericClass::Movement);
  t.on("Unsqueeze", 1, takes(1, importUnsqueeze), NumericClass::Movement);
  t.on("Transpose", 1, takes(1, importTranspose), NumericClass::Movement);
  t.on("Concat", 4, importConcat, {NumericClass::Movement, Arithmetic::Chooses});
  t.on("Expand", 8, takes(2, importExpand), NumericClass::Movement);
  t.on("Tile", 6, takes(2, importTile), NumericClass::Movement);
  t.on("Slice", 1, takes(1, importSlice), NumericClass::Movement);
  t.on("Pad", 2, takes(1, importPad), NumericClass::Movement);
  t.on("Split", 2, takes(1, importSplit), NumericClass::Movement);
  t.on("Range", 11, takes(3, importRange), {NumericClass::Pinned, Arithmetic::Steps});
  t.on("MelWeightMatrix", 17, takes(5, importMelWeightMatrix), NumericClass::Pinned);
  t.on("DepthToSpace", 1, importDepthToSpace, NumericClass::Movement);
  t.on("SpaceToDepth", 1, importSpaceToDepth, NumericClass::Movement);
  t.on("Trilu", 14, takes(1, importTrilu), NumericClass::Movement);
  t.on("EyeLike", 9, takes(1, importEyeLike), NumericClass::Pinned);
  t.on("ReverseSequence", 10, takes(2, importReverseSequence), NumericClass::Movement);
  t.on("CenterCropPad", 18, takes(2, importCenterCropPad), NumericClass::Movement);
}
