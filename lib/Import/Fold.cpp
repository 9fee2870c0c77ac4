// SPDX-License-Identifier: Apache-2.0
// Evaluation of core ops on constants: what is left of shape arithmetic once input shapes are numbers.
#include "Converter.h"
#include "Host.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {
/// Results above these sizes are computed at run time (unless they are splats): masks of long sequences, random tables.
constexpr int64_t largestInteger = 1 << 18, largestFloat = 1 << 14, largestBroadcast = 1 << 12;

using Inputs = ArrayRef<HostTensor>;
using Shape = ArrayRef<int64_t>;

/// Row-major counting over a shape.
struct Counter {
  explicit Counter(Shape shape) : shape(shape), at(shape.size(), 0) {}
  void next() {
    for (size_t d = shape.size(); d-- > 0 && ++at[d] == shape[d];)
      at[d] = 0;
  }
  Shape shape;
  SmallVector<int64_t> at;
};
} // namespace

static SmallVector<int64_t> rowMajor(Shape shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  return strides;
}

/// Fills `y` with elements of `x`; `source` maps a position of y to one of x.
template <typename Source> static bool move(HostTensor &y, const HostTensor &x, Source source) {
  if (x.splat) {
    y.splat = true;
    y.resize();
    y.copy(0, x, 0);
    return true;
  }
  y.resize();
  SmallVector<int64_t> strides = rowMajor(x.type.getShape());
  Counter counter(y.type.getShape());
  for (int64_t i = 0, e = y.count(); i < e; ++i, counter.next()) {
    std::optional<int64_t> from = source(counter.at, strides);
    if (!from)
      return false;
    y.copy(i, x, *from);
  }
  return true;
}

static std::optional<int64_t> wrap(int64_t index, int64_t extent) {
  index += index < 0 ? extent : 0;
  if (index < 0 || index >= extent)
    return std::nullopt;
  return index;
}

static bool unary(HostTensor &y, const HostTensor &x, llvm::function_ref<double(double)> real,
                  llvm::function_ref<int64_t(int64_t)> integer) {
  y.splat = x.splat;
  y.resize();
  for (int64_t i = 0, e = y.count(); i < e; ++i) {
    if (y.isFloat() && real)
      y.floats[i] = real(x.floats[i]);
    else if (!y.isFloat() && integer)
      y.ints[i] = integer(x.ints[i]);
    else
      return false;
  }
  return true;
}

template <typename Real, typename Integer> static bool binary(HostTensor &y, Inputs in, Real real, Integer integer) {
  y.splat = in[0].splat && in[1].splat;
  y.resize();
  for (int64_t i = 0, e = y.count(); i < e; ++i) {
    if (y.isFloat())
      y.floats[i] = real(in[0].real(i), in[1].real(i));
    else
      y.ints[i] = integer(in[0].integer(i), in[1].integer(i));
  }
  return true;
}

template <typename T> static bool holds(Predicate predicate, T a, T b) {
  switch (predicate) {
  case Predicate::eq:
    return a == b;
  case Predicate::ne:
    return a != b;
  case Predicate::lt:
    return a < b;
  case Predicate::le:
    return a <= b;
  case Predicate::gt:
    return a > b;
  case Predicate::ge:
    return a >= b;
  }
  return false;
}

static bool hasZero(const HostTensor &x) { return !x.isFloat() && llvm::is_contained(x.ints, 0); }

static int64_t wrapAdd(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) + uint64_t(b)); }
static int64_t wrapSub(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) - uint64_t(b)); }
static int64_t wrapMul(int64_t a, int64_t b) { return static_cast<int64_t>(uint64_t(a) * uint64_t(b)); }
static int64_t quotient(int64_t a, int64_t b) { return b == -1 ? wrapSub(0, a) : a / b; }
static int64_t restOf(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

static bool evaluateElementwise(Operation *op, Inputs in, HostTensor &y) {
  auto realOnly = [&](llvm::function_ref<double(double)> f) { return unary(y, in[0], f, nullptr); };
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](AddOp) { return binary(y, in, std::plus<double>(), wrapAdd); })
      .Case([&](SubOp) { return binary(y, in, std::minus<double>(), wrapSub); })
      .Case([&](MulOp) { return binary(y, in, std::multiplies<double>(), wrapMul); })
      .Case([&](DivOp) { return !hasZero(in[1]) && binary(y, in, std::divides<double>(), quotient); })
      .Case([&](ModOp) {
        return !hasZero(in[1]) && binary(y, in, [](double a, double b) { return std::fmod(a, b); }, restOf);
      })
      .Case([&](PowOp) {
        return y.isFloat() && binary(y, in, [](double a, double b) { return std::pow(a, b); }, wrapMul);
      })
      .Case([&](MaxOp) {
        return binary(
            y, in, [](double a, double b) { return a > b || std::isnan(a) ? a : b; },
            [](int64_t a, int64_t b) { return std::max(a, b); });
      })
      .Case([&](MinOp) {
        return binary(
            y, in, [](double a, double b) { return a < b || std::isnan(a) ? a : b; },
            [](int64_t a, int64_t b) { return std::min(a, b); });
      })
      .Case([&](AndOp) { return binary(y, in, std::plus<double>(), [](int64_t a, int64_t b) { return a & b; }); })
      .Case([&](OrOp) { return binary(y, in, std::plus<double>(), [](int64_t a, int64_t b) { return a | b; }); })
      .Case([&](XorOp) { return binary(y, in, std::plus<double>(), [](int64_t a, int64_t b) { return a ^ b; }); })
      .Case([&](NotOp) {
        bool logical = y.type.getElementType().isInteger(1);
        return logical ? unary(y, in[0], nullptr, [](int64_t a) -> int64_t { return !a; })
                       : unary(y, in[0], nullptr, [](int64_t a) { return ~a; });
      })
      .Case(
          [&](NegOp) { return unary(y, in[0], [](double a) { return -a; }, [](int64_t a) { return wrapSub(0, a); }); })
      .Case([&](AbsOp) {
        return unary(
            y, in[0], [](double a) { return std::fabs(a); }, [](int64_t a) { return a < 0 ? wrapSub(0, a) : a; });
      })
      .Case([&](SignOp) {
        return unary(
            y, in[0], [](double a) { return std::isnan(a) ? a : double((a > 0) - (a < 0)); },
            [](int64_t a) { return int64_t((a > 0) - (a < 0)); });
      })
      .Case([&](ClampOp clamp) {
        double low = clamp.getLow().convertToDouble(), high = clamp.getHigh().convertToDouble();
        return realOnly([&](double a) { return a < low ? low : a > high ? high : a; });
      })
      .Case([&](ReluOp) {
        return unary(
            y, in[0], [](double a) { return a < 0 ? 0 : a; }, [](int64_t a) { return std::max<int64_t>(a, 0); });
      })
      .Case([&](RoundOp) { return realOnly([](double a) { return std::nearbyint(a); }); })
      .Case([&](FloorOp) { return realOnly([](double a) { return std::floor(a); }); })
      .Case([&](CeilOp) { return realOnly([](double a) { return std::ceil(a); }); })
      .Case([&](SqrtOp) { return realOnly([](double a) { return std::sqrt(a); }); })
      .Case([&](ReciprocalOp) { return realOnly([](double a) { return 1 / a; }); })
      .Case([&](ExpOp) { return realOnly([](double a) { return std::exp(a); }); })
      .Case([&](LogOp) { return realOnly([](double a) { return std::log(a); }); })
      .Case([&](SinOp) { return realOnly([](double a) { return std::sin(a); }); })
      .Case([&](CosOp) { return realOnly([](double a) { return std::cos(a); }); })
      .Case([&](CompareOp compare) {
        y.splat = in[0].splat && in[1].splat;
        y.resize();
        for (int64_t i = 0, e = y.count(); i < e; ++i)
          y.ints[i] = in[0].isFloat() ? holds(compare.getPredicate(), in[0].real(i), in[1].real(i))
                                      : holds(compare.getPredicate(), in[0].integer(i), in[1].integer(i));
        return !compare.getLhs().getType().getElementType().isUnsignedInteger(64);
      })
      .Case([&](SelectOp) {
        y.splat = in[0].splat && (in[in[0].ints[0] ? 1 : 2].splat);
        y.resize();
        for (int64_t i = 0, e = y.count(); i < e; ++i)
          y.copy(i, in[0].integer(i) ? in[1] : in[2], i);
        return true;
      })
      .Case([&](CastOp cast) {
        if (cast.getKey())
          return false;
        y.splat = in[0].splat;
        y.resize();
        bool logical = y.type.getElementType().isInteger(1);
        for (int64_t i = 0, e = y.count(); i < e; ++i) {
          if (y.isFloat()) {
            y.floats[i] = in[0].real(i);
            continue;
          }
          if (in[0].isFloat() && !(std::fabs(in[0].floats[i]) < 9e18))
            return false;
          y.ints[i] = in[0].isFloat() ? static_cast<int64_t>(in[0].floats[i]) : in[0].ints[i];
          if (logical)
            y.ints[i] = in[0].real(i) != 0;
        }
        return true;
      })
      .Default(false);
}

static int64_t plus(int64_t a, int64_t b) { return wrapAdd(a, b); }
static int64_t times(int64_t a, int64_t b) { return wrapMul(a, b); }
static double plus(double a, double b) { return a + b; }
static double times(double a, double b) { return a * b; }

static bool evaluateReduce(ReduceOp op, const HostTensor &x, HostTensor &y) {
  y.resize();
  if (x.type.getNumElements() == 0) {
    // The neutral element: what the size of a scalar's shape is.
    bool sum = op.getKind() == ReduceKind::sum;
    std::fill(y.floats.begin(), y.floats.end(), sum ? 0 : 1);
    std::fill(y.ints.begin(), y.ints.end(), sum ? 0 : 1);
    return sum || op.getKind() == ReduceKind::prod;
  }
  SmallVector<int64_t> strides = rowMajor(y.type.getShape()), count(y.count(), 0);
  Counter counter(x.type.getShape());
  auto combine = [&](auto &value, auto next, bool first) {
    switch (op.getKind()) {
    case ReduceKind::sum:
    case ReduceKind::mean:
      value = first ? next : plus(value, next);
      break;
    case ReduceKind::max:
      value = first ? next : std::max(value, next);
      break;
    case ReduceKind::min:
      value = first ? next : std::min(value, next);
      break;
    case ReduceKind::prod:
      value = first ? next : times(value, next);
      break;
    }
  };
  for (int64_t i = 0, e = x.type.getNumElements(); i < e; ++i, counter.next()) {
    int64_t to = 0, d = 0;
    for (auto [axis, position] : llvm::enumerate(counter.at))
      if (!llvm::is_contained(op.getAxes(), static_cast<int64_t>(axis)))
        to += position * strides[d++];
    if (y.isFloat())
      combine(y.floats[to], x.real(i), count[to] == 0);
    else
      combine(y.ints[to], x.integer(i), count[to] == 0);
    ++count[to];
  }
  if (op.getKind() == ReduceKind::mean)
    for (int64_t i = 0, e = y.count(); i < e; ++i)
      y.isFloat() ? void(y.floats[i] /= count[i]) : void(y.ints[i] /= count[i]);
  return true;
}

static bool evaluateConcat(ConcatOp op, Inputs in, HostTensor &y) {
  y.resize();
  Shape shape = y.type.getShape();
  int64_t axis = op.getAxis(), outer = 1, inner = 1, offset = 0;
  for (int64_t d = 0; d < axis; ++d)
    outer *= shape[d];
  for (int64_t d = axis + 1; d < y.type.getRank(); ++d)
    inner *= shape[d];
  for (const HostTensor &x : in) {
    int64_t extent = x.type.getDimSize(axis);
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t i = 0; i < extent * inner; ++i)
        y.copy((o * shape[axis] + offset) * inner + i, x, o * extent * inner + i);
    offset += extent;
  }
  return true;
}

static bool evaluateGather(GatherOp op, Inputs in, HostTensor &y) {
  int64_t axis = op.getAxis(), indexRank = in[1].type.getRank(), extent = in[0].type.getDimSize(axis);
  SmallVector<int64_t> indexStrides = rowMajor(in[1].type.getShape());
  return move(y, in[0], [&](Shape at, Shape strides) -> std::optional<int64_t> {
    int64_t index = 0, from = 0;
    for (int64_t d = 0; d < indexRank; ++d)
      index += at[axis + d] * indexStrides[d];
    std::optional<int64_t> picked = wrap(in[1].integer(index), extent);
    if (!picked)
      return std::nullopt;
    for (int64_t d = 0; d < in[0].type.getRank(); ++d)
      from += strides[d] * (d < axis ? at[d] : d == axis ? *picked : at[d + indexRank - 1]);
    return from;
  });
}

static bool evaluateScatterND(ScatterNDOp op, Inputs in, HostTensor &y) {
  if (op.getKind() != ScatterKind::assign || op.getBatchDims() != 0)
    return false;
  y.resize();
  for (int64_t i = 0, e = y.count(); i < e; ++i)
    y.copy(i, in[0], i);
  Shape shape = y.type.getShape();
  SmallVector<int64_t> strides = rowMajor(shape);
  int64_t depth = in[1].type.getShape().back(), slice = 1;
  for (int64_t extent : shape.drop_front(depth))
    slice *= extent;
  for (int64_t t = 0, e = in[1].type.getNumElements() / std::max<int64_t>(depth, 1); t < e; ++t) {
    int64_t to = 0;
    for (int64_t d = 0; d < depth; ++d) {
      std::optional<int64_t> index = wrap(in[1].integer(t * depth + d), shape[d]);
      if (!index)
        return false;
      to += *index * strides[d];
    }
    for (int64_t i = 0; i < slice; ++i)
      y.copy(to + i, in[2], t * slice + i);
  }
  return true;
}

static bool evaluateMovement(Operation *op, Inputs in, HostTensor &y) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](ReshapeOp) {
        y.splat = in[0].splat;
        y.floats = in[0].floats;
        y.ints = in[0].ints;
        return true;
      })
      .Case([&](TransposeOp transpose) {
        return move(y, in[0], [&](Shape at, Shape strides) -> std::optional<int64_t> {
          int64_t from = 0;
          for (auto [i, dim] : llvm::enumerate(transpose.getPermutation()))
            from += at[i] * strides[dim];
          return from;
        });
      })
      .Case([&](BroadcastOp broadcast) {
        return move(y, in[0], [&](Shape at, Shape strides) -> std::optional<int64_t> {
          int64_t from = 0;
          for (auto [i, dim] : llvm::enumerate(broadcast.getDims()))
            from += in[0].type.getDimSize(i) == 1 ? 0 : at[dim] * strides[i];
          return from;
        });
      })
      .Case([&](SliceOp slice) {
        return move(y, in[0], [&](Shape at, Shape strides) -> std::optional<int64_t> {
          int64_t from = 0;
          for (size_t d = 0; d < at.size(); ++d)
            from += (slice.getStarts()[d] + at[d] * slice.getStrides()[d]) * strides[d];
          return from;
        });
      })
      .Case([&](ReverseOp reverse) {
        return move(y, in[0], [&](Shape at, Shape strides) -> std::optional<int64_t> {
          int64_t from = 0;
          for (size_t d = 0; d < at.size(); ++d)
            from += strides[d] *
                    (llvm::is_contained(reverse.getAxes(), int64_t(d)) ? y.type.getDimSize(d) - 1 - at[d] : at[d]);
          return from;
        });
      })
      .Case([&](IotaOp iota) {
        y.resize();
        Counter counter(y.type.getShape());
        for (int64_t i = 0, e = y.count(); i < e; ++i, counter.next())
          y.isFloat() ? void(y.floats[i] = counter.at[iota.getAxis()]) : void(y.ints[i] = counter.at[iota.getAxis()]);
        return true;
      })
      .Case([&](GatherOp gather) { return evaluateGather(gather, in, y); })
      .Case([&](ConcatOp concat) { return evaluateConcat(concat, in, y); })
      .Case([&](ReduceOp reduce) { return evaluateReduce(reduce, in[0], y); })
      .Case([&](ScatterNDOp scatter) { return evaluateScatterND(scatter, in, y); })
      .Case([&](CumSumOp sum) {
        // Only the plain form: what position arithmetic needs.
        if (sum.getExclusive() || sum.getReverse())
          return false;
        SmallVector<int64_t> strides = rowMajor(y.type.getShape());
        y.resize();
        Counter counter(y.type.getShape());
        for (int64_t i = 0, e = y.count(); i < e; ++i, counter.next()) {
          y.copy(i, in[0], i);
          if (counter.at[sum.getAxis()] == 0)
            continue;
          int64_t before = i - strides[sum.getAxis()];
          y.isFloat() ? void(y.floats[i] += y.floats[before]) : void(y.ints[i] = wrapAdd(y.ints[i], y.ints[before]));
        }
        return true;
      })
      .Default(false);
}

ElementsAttr mpt::constantOf(Value value) {
  auto constant = value ? value.getDefiningOp<ConstantOp>() : ConstantOp();
  return constant ? constant.getValue() : ElementsAttr();
}

ElementsAttr mpt::evaluateConstant(Operation *op) {
  if (op->getNumResults() != 1 || (op->getNumOperands() == 0 && !isa<IotaOp>(op)))
    return {};
  auto type = dyn_cast<RankedTensorType>(op->getResult(0).getType());
  if (!type)
    return {};
  bool allSplat = true;
  SmallVector<ElementsAttr> attrs;
  for (Value operand : op->getOperands()) {
    ElementsAttr attr = constantOf(operand);
    if (!attr)
      return {};
    allSplat &= attr.isSplat();
    attrs.push_back(attr);
  }
  int64_t limit = isa<FloatType>(type.getElementType()) ? largestFloat : largestInteger;
  bool large = type.getNumElements() > limit || llvm::any_of(attrs, [&](ElementsAttr attr) {
                 return !attr.isSplat() && attr.getNumElements() > largestInteger;
               });
  if (large && !allSplat)
    return {};
  // A mask repeated over a batch is cheaper to repeat at run time than to keep.
  if (isa<BroadcastOp>(op) && !allSplat && type.getNumElements() > largestBroadcast)
    return {};
  if (type.getNumElements() == 0)
    return writeHost(HostTensor(type));
  // These go through elements one by one, those of a splat too.
  bool manyElements =
      large || llvm::any_of(attrs, [](ElementsAttr attr) { return attr.getNumElements() > largestInteger; });
  if (manyElements && isa<IotaOp, ConcatOp, ReduceOp, CumSumOp, ScatterNDOp>(op))
    return {};
  SmallVector<HostTensor> in;
  for (ElementsAttr attr : attrs) {
    std::optional<HostTensor> tensor = readHost(attr);
    if (!tensor || (tensor->type.getNumElements() == 0 && !isa<ConcatOp, ReduceOp>(op)))
      return {};
    in.push_back(std::move(*tensor));
  }
  HostTensor y(type);
  if (!evaluateElementwise(op, in, y)) {
    y = HostTensor(type);
    if (!evaluateMovement(op, in, y))
      return {};
  }
  return writeHost(y);
}
