// SPDX-License-Identifier: Apache-2.0
// Reduce family. Sums and products run over the input in row-major order, rounded to the accumulator type at each step.
#include "Rules.h"
#include "mpt/Dialect/MPT/Accumulators.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Extents before, at and after one axis.
struct AxisView {
  AxisView(ArrayRef<int64_t> shape, int64_t axis) : extent(shape[axis]) {
    for (int64_t d : shape.take_front(axis))
      outer *= d;
    for (int64_t d : shape.drop_front(axis + 1))
      inner *= d;
  }
  int64_t outer = 1, extent, inner = 1;
};

/// Folds every input element into its output element.
template <typename Element, typename Fn>
void fold(const Tensor &x, ArrayRef<int64_t> strides, ArrayRef<Element> in, MutableArrayRef<Element> out, Fn fn) {
  forEachStrided(x.shape(), strides, 0, [&](int64_t from, int64_t to) { out[to] = fn(out[to], in[from]); });
}

double larger(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::max(a, b); }
double smaller(double a, double b) { return std::isnan(a) ? a : std::isnan(b) ? b : std::min(a, b); }

/// The sums of FP32 values with the errors of all additions, as kernels with exact sums gather them.
void sumExactly(const Tensor &x, ArrayRef<int64_t> strides, MutableArrayRef<double> out) {
  std::vector<double> errors(out.size());
  ArrayRef<double> in = x.reals();
  forEachStrided(x.shape(), strides, 0, [&](int64_t from, int64_t to) {
    double sum = out[to], total = sum + in[from], back = total - sum;
    errors[to] += (sum - (total - back)) + (in[from] - back);
    out[to] = total;
  });
  for (auto [sum, error] : llvm::zip_equal(out, errors))
    sum = std::isfinite(sum) ? sum + error : sum;
}

/// Reductions of integers, which wrap.
struct IntegerReduction {
  IntegerReduction(ReduceKind kind, Type type)
      : kind(kind), type(type), isUnsigned(type.isUnsignedInteger() || type.isInteger(1)) {}

  int64_t start() const {
    const unsigned width = type.getIntOrFloatBitWidth();
    const int64_t top = isUnsigned ? wrapInteger(-1, type) : static_cast<int64_t>((UINT64_C(1) << (width - 1)) - 1);
    switch (kind) {
    case ReduceKind::max:
      return isUnsigned ? 0 : -top - 1;
    case ReduceKind::min:
      return top;
    default:
      return kind == ReduceKind::prod;
    }
  }
  int64_t combine(int64_t a, int64_t b) const {
    bool isLess = isUnsigned ? uint64_t(a) < uint64_t(b) : a < b;
    if (kind == ReduceKind::max)
      return isLess ? b : a;
    if (kind == ReduceKind::min)
      return isLess ? a : b;
    return static_cast<int64_t>(kind == ReduceKind::prod ? uint64_t(a) * uint64_t(b) : uint64_t(a) + uint64_t(b));
  }
  int64_t meanOf(int64_t sum, int64_t count) const {
    sum = wrapInteger(sum, type);
    return isUnsigned ? static_cast<int64_t>(uint64_t(sum) / uint64_t(count)) : sum / count;
  }

  ReduceKind kind;
  Type type;
  bool isUnsigned;
};

void reduceIntegers(ReduceKind kind, const Tensor &x, ArrayRef<int64_t> strides, int64_t count, Tensor &y) {
  IntegerReduction reduction(kind, x.getElementType());
  MutableArrayRef<int64_t> out = y.writeInts();
  std::fill(out.begin(), out.end(), reduction.start());
  fold<int64_t>(x, strides, x.ints(), out, [&](int64_t a, int64_t b) { return reduction.combine(a, b); });
  if (kind == ReduceKind::mean && count)
    for (int64_t &sum : out)
      sum = reduction.meanOf(sum, count);
}

/// Reduces floats, each step rounded; sums that `out` already has are only rounded.
template <typename Round>
void reduceReals(ReduceKind kind, const Tensor &x, ArrayRef<int64_t> strides, bool isSummed,
                 MutableArrayRef<double> out, Round round) {
  ArrayRef<double> in = x.reals();
  auto foldFrom = [&](double start, auto fn) {
    std::fill(out.begin(), out.end(), start);
    fold<double>(x, strides, in, out, fn);
  };
  switch (kind) {
  case ReduceKind::sum:
  case ReduceKind::mean:
    if (!isSummed)
      foldFrom(0, [&](double a, double b) { return round(a + b); });
    else if (kind == ReduceKind::sum)
      llvm::transform(out, out.begin(), round);
    return;
  case ReduceKind::prod:
    return foldFrom(1, [&](double a, double b) { return round(a * b); });
  case ReduceKind::max:
    return foldFrom(-HUGE_VAL, larger);
  case ReduceKind::min:
    return foldFrom(HUGE_VAL, smaller);
  }
}

LogicalResult interpretReduce(ReduceOp op, InterpreterFrame &frame) {
  NumericsAttr numerics = op.getNumericsAttr();
  Tensor x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  // Stride 0 along reduced axes sends their elements to one output.
  SmallVector<int64_t> kept = otherAxes(x.rank(), op.getAxes()), strides(x.rank(), 0),
                       outStrides = rowMajorStrides(y.shape());
  for (auto [i, axis] : llvm::enumerate(kept))
    strides[axis] = outStrides[i];
  int64_t count = y.size() ? x.size() / y.size() : 0;
  ReduceKind kind = op.getKind();
  if (!x.isFloat()) {
    reduceIntegers(kind, x, strides, count, y);
    frame.set(op.getY(), std::move(y));
    return success();
  }
  x = frame.readAs(x, numerics);
  MutableArrayRef<double> out = y.writeReals();
  FloatType accumulator = frame.accumulatorType(x.getElementType(), numerics);
  const bool exact = frame.ordersSums() && accumulator.isF32() && (kind == ReduceKind::sum || kind == ReduceKind::mean);
  if (exact)
    sumExactly(x, strides, out);
  withRounding(accumulator, [&](auto round) {
    reduceReals(kind, x, strides, exact, out, round);
    if (kind == ReduceKind::mean)
      for (double &sum : out)
        sum = round(sum / static_cast<double>(count));
  });
  frame.deliver(op.getY(), std::move(y), numerics);
  return success();
}

LogicalResult interpretArgReduce(ArgReduceOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  if (op.getKind() != ReduceKind::max && op.getKind() != ReduceKind::min)
    return op.emitOpError() << "expected kind max or min, got " << stringifyReduceKind(op.getKind());
  AxisView view(x.shape(), op.getAxis());
  bool isMax = op.getKind() == ReduceKind::max;
  Tensor y = frame.zeros(op.getY());
  MutableArrayRef<int64_t> out = y.writeInts();
  auto search = [&](auto in) {
    for (int64_t a = 0; a < view.outer; ++a)
      for (int64_t b = 0; b < view.inner; ++b) {
        int64_t best = 0;
        for (int64_t i = 1; i < view.extent; ++i) {
          auto value = in[(a * view.extent + i) * view.inner + b], top = in[(a * view.extent + best) * view.inner + b];
          bool isNaN = value != value, topIsNaN = top != top;
          bool wins = topIsNaN ? isNaN && op.getLast()
                               : isNaN || (isMax ? value > top : value < top) || (op.getLast() && value == top);
          if (wins)
            best = i;
        }
        out[a * view.inner + b] = best;
      }
  };
  if (x.isFloat())
    search(x.reals());
  else if (x.isUnsigned64())
    search(x.words());
  else
    search(x.ints());
  frame.set(op.getY(), std::move(y));
  return success();
}

LogicalResult interpretCumSum(CumSumOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  AxisView view(x.shape(), op.getAxis());
  Tensor y = frame.zeros(op.getY());
  auto scan = [&](auto in, auto out, auto round) {
    for (int64_t a = 0; a < view.outer; ++a)
      for (int64_t b = 0; b < view.inner; ++b) {
        std::decay_t<decltype(in[0])> sum = 0;
        for (int64_t step = 0; step < view.extent; ++step) {
          int64_t i = op.getReverse() ? view.extent - 1 - step : step;
          int64_t at = (a * view.extent + i) * view.inner + b;
          auto next = round(sum + in[at]);
          out[at] = op.getExclusive() ? sum : next;
          sum = next;
        }
      }
  };
  if (x.isFloat())
    withRounding(frame.accumulatorType(x.getElementType(), numericsOf(op)),
                 [&](auto round) { scan(x.reals(), y.writeReals(), round); });
  else
    scan(x.words(), y.writeInts(), [](uint64_t value) { return value; });
  frame.set(op.getY(), std::move(y));
  return success();
}

} // namespace

void mpt::attachReduceRules(MLIRContext *context) {
  attachRule<ReduceOp, interpretReduce>(context);
  attachRule<ArgReduceOp, interpretArgReduce>(context);
  attachRule<CumSumOp, interpretCumSum>(context);
}
