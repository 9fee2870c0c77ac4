// SPDX-License-Identifier: Apache-2.0
// Gathers, and operators that read or compare positions.
#include "Constants.h"

using namespace mlir;
using namespace mpt;

static LogicalResult importGather(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis))
    return failure();
  // One constant index is a slice: exact, without an index at run time.
  if (ElementsAttr indices = b.given(1); indices && indices.getNumElements() == 1 && !b.given(0)) {
    int64_t extent = b.shape(0)[*axis], index = Binder::intsOf(indices)[0];
    if (index < -extent || index >= extent)
      return b.fail() << "expected an index below " << extent << ", got " << index;
    SmallVector<int64_t> starts(b.rank(0), 0), sizes(b.shape(0)), shape(b.shape(0));
    starts[*axis] = index < 0 ? index + extent : index;
    sizes[*axis] = 1;
    shape.erase(shape.begin() + *axis);
    shape.insert(shape.begin() + *axis, b.rank(1), 1);
    return b.done(b.reshape(b.slice(b.in(0), starts, sizes), shape));
  }
  return b.done(b.make<GatherOp>(b.in(0), b.in(1), *axis));
}

static LogicalResult importGatherElements(Binder &b) {
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", 0), b.rank(0));
  if (failed(axis) || failed(b.checkElementIndices(b.shape(0), b.shape(1), *axis)))
    return failure();
  return b.done(b.make<GatherElementsOp>(b.in(0), b.in(1), *axis));
}

static LogicalResult importGatherND(Binder &b) {
  int64_t batch = b.intAttr("batch_dims", 0);
  ArrayRef<int64_t> x = b.shape(0), indices = b.shape(1);
  if (batch < 0 || b.rank(1) < 1 || batch >= std::min(b.rank(0), b.rank(1)) || indices.back() < 1 ||
      indices.back() > b.rank(0) - batch || indices.take_front(batch) != x.take_front(batch))
    return b.fail() << "expected index tuples that fit the data, got " << b.in(1).getType() << " for "
                    << b.in(0).getType() << " with batch_dims " << batch;
  return b.done(b.make<GatherNDOp>(b.in(0), b.in(1), batch));
}

static LogicalResult importOneHot(Binder &b) {
  FailureOr<double> depth = b.number(1, "depth");
  if (failed(depth))
    return failure();
  FailureOr<int64_t> axis = b.axis(b.intAttr("axis", -1), b.rank(0) + 1);
  if (failed(axis))
    return failure();
  if (*depth < 1 || *depth > (1 << 24) || b.shape(2) != ArrayRef<int64_t>{2})
    return b.fail() << "expected a positive depth and two values, got depth " << *depth << " and values "
                    << b.in(2).getType();
  int64_t classes = static_cast<int64_t>(*depth);
  SmallVector<int64_t> shape(b.shape(0)), dims = otherAxes(b.rank(0) + 1, {*axis});
  shape.insert(shape.begin() + *axis, classes);
  Type i64 = b.builder.getI64Type();
  Value index = b.broadcast(b.cast(b.in(0), i64), shape, dims);
  Value position = IotaOp::create(b.builder, b.loc, RankedTensorType::get(shape, i64), b.i64(*axis));
  Value wrapped = b.select(b.compare(Predicate::lt, index, 0.0), b.add(index, static_cast<double>(classes)), index);
  Value hit = b.compare(Predicate::eq, wrapped, position);
  auto pick = [&](int64_t i) { return b.broadcastTo(b.reshape(b.slice(b.in(2), {i}, {1}), {}), shape); };
  return b.done(b.select(hit, pick(1), pick(0)));
}

static LogicalResult importNonZero(Binder &b) {
  ElementsAttr values = b.required(0);
  if (!values)
    return b.fail() << "expected constant values, as the result's shape depends on them, got values that are computed "
                       "at run time [mpt-shape-from-values]";
  FailureOr<Tensor> x = elementsOf(b, values, "values");
  if (failed(x))
    return failure();
  int64_t rank = b.rank(0);
  SmallVector<SmallVector<int64_t>> positions(rank);
  SmallVector<int64_t> at(rank, 0);
  int64_t count = 0;
  for (int64_t i = 0, e = x->size(); i < e; ++i) {
    if (x->number(i) != 0) {
      ++count;
      for (int64_t d = 0; d < rank; ++d)
        positions[d].push_back(at[d]);
    }
    for (int64_t d = rank; d-- > 0 && ++at[d] == b.shape(0)[d];)
      at[d] = 0;
  }
  SmallVector<int64_t> flat;
  for (ArrayRef<int64_t> row : positions)
    flat.append(row.begin(), row.end());
  auto type = RankedTensorType::get({rank, count}, b.builder.getI64Type());
  return b.done(b.constant(DenseElementsAttr::get(type, ArrayRef<int64_t>(flat))));
}

static LogicalResult failOnShape(Binder &b, StringRef what) {
  return b.fail() << "expected constant " << what
                  << ", as the result's shape depends on them, got values that are computed at run time; select by "
                     "Where or Gather instead";
}

/// The slices of x that a condition keeps.
static LogicalResult importCompress(Binder &b) {
  ElementsAttr condition = b.required(1);
  if (!condition)
    return failOnShape(b, "conditions");
  FailureOr<Tensor> flags = elementsOf(b, condition, "conditions");
  if (failed(flags))
    return failure();
  Value x = b.in(0);
  int64_t axis = 0;
  if (auto given = dyn_cast_or_null<IntegerAttr>(b.attr("axis"))) {
    FailureOr<int64_t> checked = b.axis(given.getInt(), b.rank(0));
    if (failed(checked))
      return failure();
    axis = *checked;
  } else {
    x = b.reshape(x, {tensorType(x).getNumElements()});
  }
  SmallVector<int64_t> kept;
  for (int64_t i = 0, e = std::min(flags->size(), tensorType(x).getDimSize(axis)); i < e; ++i)
    if (flags->number(i) != 0)
      kept.push_back(i);
  return b.done(b.make<GatherOp>(x, b.indices(kept), axis));
}

namespace {
/// The different slices of a constant tensor: where each is found first, which one stands at each place, and how often.
struct Distinct {
  SmallVector<int64_t> first, inverse, counts;
};
} // namespace

/// The slices of x, outer x extent x inner, in order of their values, or of where they are found first.
static Distinct distinctSlices(const Tensor &x, int64_t extent, int64_t inner, bool sorted) {
  int64_t outer = x.size() / std::max<int64_t>(extent * inner, 1);
  auto compare = [&](int64_t a, int64_t b) {
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < inner; ++i) {
        int64_t p = (o * extent + a) * inner + i, q = (o * extent + b) * inner + i;
        if (x.isFloat() ? x.reals()[p] != x.reals()[q] : x.ints()[p] != x.ints()[q])
          return (x.isFloat() ? x.reals()[p] < x.reals()[q] : x.ints()[p] < x.ints()[q]) ? -1 : 1;
      }
    return 0;
  };
  SmallVector<int64_t> order = axisRange(0, extent);
  llvm::stable_sort(order, [&](int64_t a, int64_t b) { return compare(a, b) < 0; });
  Distinct found;
  found.inverse.resize(extent);
  for (auto [i, at] : llvm::enumerate(order)) {
    if (i == 0 || compare(order[i - 1], at) != 0) {
      found.first.push_back(at);
      found.counts.push_back(0);
    }
    ++found.counts.back();
    found.inverse[at] = static_cast<int64_t>(found.first.size()) - 1;
  }
  if (sorted)
    return found;
  SmallVector<int64_t> byPlace = axisRange(0, found.first.size()), rank(found.first.size());
  llvm::sort(byPlace, [&](int64_t a, int64_t b) { return found.first[a] < found.first[b]; });
  Distinct result;
  for (auto [i, at] : llvm::enumerate(byPlace)) {
    rank[at] = i;
    result.first.push_back(found.first[at]);
    result.counts.push_back(found.counts[at]);
  }
  for (int64_t at : found.inverse)
    result.inverse.push_back(rank[at]);
  return result;
}

static LogicalResult importUnique(Binder &b) {
  ElementsAttr values = b.required(0);
  if (!values)
    return failOnShape(b, "values");
  FailureOr<Tensor> x = elementsOf(b, values, "values");
  if (failed(x))
    return failure();
  Value data = b.in(0);
  SmallVector<int64_t> shape(b.shape(0));
  int64_t axis = 0;
  if (auto given = dyn_cast_or_null<IntegerAttr>(b.attr("axis"))) {
    FailureOr<int64_t> checked = b.axis(given.getInt(), b.rank(0));
    if (failed(checked))
      return failure();
    axis = *checked;
  } else {
    shape = {x->size()};
    data = b.reshape(data, shape);
  }
  int64_t inner = 1;
  for (int64_t extent : ArrayRef(shape).drop_front(axis + 1))
    inner *= extent;
  Distinct found = distinctSlices(*x, shape[axis], inner, b.intAttr("sorted", 1) != 0);
  for (auto [i, list] : llvm::enumerate(ArrayRef<SmallVector<int64_t>>{found.first, found.inverse, found.counts}))
    if (b.wants(i + 1) && failed(b.set(i + 1, b.indices(list))))
      return failure();
  return b.done(b.make<GatherOp>(data, b.indices(found.first), axis));
}

static LogicalResult importArrayFeatureExtractor(Binder &b) {
  if (b.rank(0) < 1)
    return b.fail() << "expected x of rank 1 or more, got a scalar";
  Value x = b.rank(0) == 1 ? b.reshape(b.in(0), {1, b.shape(0)[0]}) : b.in(0);
  Value places = b.reshape(b.in(1), {tensorType(b.in(1)).getNumElements()});
  return b.done(b.make<GatherOp>(x, places, tensorType(x).getRank() - 1));
}

void mpt::addGatherRules(RuleTable &t) {
  t.onDomain("ai.onnx.ml", "ArrayFeatureExtractor", takes(2, importArrayFeatureExtractor), NumericClass::Movement);
  t.on("Gather", 1, takes(2, importGather), NodeClass(NumericClass::Movement).trains({0}));
  t.on("GatherElements", 11, takes(2, importGatherElements), NodeClass(NumericClass::Movement).trains({0}));
  t.on("GatherND", 11, takes(2, importGatherND), NodeClass(NumericClass::Movement).trains({0}));
  t.on("OneHot", 9, takes(3, importOneHot), {NumericClass::Movement, Arithmetic::Chooses});
  t.on("NonZero", 9, takes(1, importNonZero), {NumericClass::Movement, Arithmetic::Counts});
  t.on("Compress", 9, takes(2, importCompress), NumericClass::Movement);
  t.on("Unique", 11, takes(1, importUnique), NumericClass::Movement);
}
