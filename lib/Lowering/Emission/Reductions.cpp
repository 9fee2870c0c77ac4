// SPDX-License-Identifier: Apache-2.0
// Running values of reductions.
// Matcher: casts and magnitudes of 16-bit floats, which are such numbers themselves.
#include "mpt/Lowering/Emission/Reductions.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

Value Accumulator::identity(ElementEmitter &e, Type type) const {
  if (auto real = dyn_cast<FloatType>(type)) {
    double values[] = {0, 0, -INFINITY, INFINITY, 1};
    return e.constant(real, values[static_cast<unsigned>(kind)]);
  }
  unsigned bits = type.getIntOrFloatBitWidth();
  bool isUnsigned = isWord || bits == 1;
  APInt values[] = {APInt(bits, 0), APInt(bits, 0), isUnsigned ? APInt(bits, 0) : APInt::getSignedMinValue(bits),
                    isUnsigned ? APInt::getMaxValue(bits) : APInt::getSignedMaxValue(bits), APInt(bits, 1)};
  return arith::ConstantOp::create(e.b, e.b.getIntegerAttr(type, values[static_cast<unsigned>(kind)]));
}

/// x + y in one instruction, where y is a product of FP32 values or narrower ones: FP64 holds it exactly, so that the
/// sum is the same number. Null elsewhere.
static Value fusedSum(ElementEmitter &e, Value x, Value y) {
  auto isWidened = [](Value value) {
    auto widen = value.getDefiningOp<arith::ExtFOp>();
    return widen && getElementTypeOrSelf(widen.getIn()).getIntOrFloatBitWidth() <= 32;
  };
  auto product = y.getDefiningOp<arith::MulFOp>();
  if (!e.target.keepsFloatOps || !product || !getElementTypeOrSelf(y).isF64() || !isWidened(product.getLhs()) ||
      !isWidened(product.getRhs()))
    return {};
  return math::FmaOp::create(e.b, product.getLhs(), product.getRhs(), x);
}

Value Accumulator::start(ElementEmitter &e, Type type, unsigned width) const {
  return e.splat(identity(e, type), exact ? 2 * width : width);
}

static Value lanesOf(ElementEmitter &e, Value x, int64_t from, int64_t count) {
  if (count == 1)
    return e.width(x) == 1 ? x : Value(vector::ExtractOp::create(e.b, x, from));
  return vector::ExtractStridedSliceOp::create(e.b, x, ArrayRef<int64_t>{from}, ArrayRef<int64_t>{count},
                                               ArrayRef<int64_t>{1});
}

/// Sums and errors, as vectors of half as many lanes.
static std::pair<Value, Value> partsOf(ElementEmitter &e, Value x) {
  const int64_t width = e.width(x) / 2;
  return {lanesOf(e, x, 0, width), lanesOf(e, x, width, width)};
}

static Value joined(ElementEmitter &e, Value sums, Value errors) {
  const int64_t width = e.width(sums);
  if (width == 1)
    return vector::FromElementsOp::create(e.b, VectorType::get(2, sums.getType()), ValueRange{sums, errors});
  SmallVector<int64_t> lanes = llvm::to_vector(llvm::seq<int64_t>(0, 2 * width));
  return vector::ShuffleOp::create(e.b, sums, errors, lanes);
}

/// x + y, where `x` is sums with errors and `y` elements, or sums whose errors are `more`. The error of an addition is
/// a number itself (Knuth, The Art of Computer Programming, volume 2, 4.2.2).
static Value addExactly(ElementEmitter &e, Value x, Value y, Value more = {}) {
  MathBuilder m(e);
  auto [sums, errors] = partsOf(e, x);
  y = e.splat(y, e.width(sums));
  if (more)
    errors = m.add(errors, e.splat(more, e.width(sums)));
  Value total = m.add(sums, y), back = m.sub(total, sums);
  Value error = m.add(m.sub(sums, m.sub(total, back)), m.sub(y, back));
  return joined(e, total, m.add(errors, error));
}

Value Accumulator::alone(ElementEmitter &e, Value y) const {
  return joined(e, y, e.splat(e.constant(Float64Type::get(e.b.getContext()), 0), e.width(y)));
}

Value Accumulator::close(ElementEmitter &e, Value x) const {
  if (!exact)
    return x;
  MathBuilder m(e);
  auto [sums, errors] = partsOf(e, x);
  // Errors of infinities are no numbers.
  return m.select(m.less(m.abs(sums), INFINITY), m.add(sums, errors), sums);
}

Value Accumulator::combine(ElementEmitter &e, Value x, Value y) const {
  ImplicitLocOpBuilder &b = e.b;
  if (exact) {
    if (e.width(y) < e.width(x))
      return addExactly(e, x, y);
    auto [sums, errors] = partsOf(e, y);
    return addExactly(e, x, sums, errors);
  }
  Type type = getElementTypeOrSelf(x);
  bool real = isa<FloatType>(type), flag = type.isInteger(1);
  switch (kind) {
  case ReduceKind::sum:
  case ReduceKind::mean:
    if (Value sum = fusedSum(e, x, y))
      return sum;
    return real ? Value(arith::AddFOp::create(b, x, y)) : Value(arith::AddIOp::create(b, x, y));
  case ReduceKind::prod:
    return real ? Value(arith::MulFOp::create(b, x, y)) : Value(arith::MulIOp::create(b, x, y));
  case ReduceKind::max:
    return real     ? Value(arith::MaximumFOp::create(b, x, y))
           : flag   ? Value(arith::OrIOp::create(b, x, y))
           : isWord ? Value(arith::MaxUIOp::create(b, x, y))
                    : Value(arith::MaxSIOp::create(b, x, y));
  case ReduceKind::min:
    return real     ? Value(arith::MinimumFOp::create(b, x, y))
           : flag   ? Value(arith::AndIOp::create(b, x, y))
           : isWord ? Value(arith::MinUIOp::create(b, x, y))
                    : Value(arith::MinSIOp::create(b, x, y));
  }
  llvm_unreachable("unknown reduction");
}

Value Accumulator::fold(ElementEmitter &e, Value x) const {
  for (; exact && e.width(x) > 2;) {
    auto [sums, errors] = partsOf(e, x);
    const int64_t half = e.width(sums) / 2;
    x = combine(e, joined(e, lanesOf(e, sums, 0, half), lanesOf(e, errors, 0, half)),
                joined(e, lanesOf(e, sums, half, half), lanesOf(e, errors, half, half)));
  }
  if (exact)
    return x;
  // A device ends with two scalars: conversions of its 16-bit numbers know no vectors of one lane.
  const int64_t least = e.target.keepsFloatOps ? 2 : 1;
  for (int64_t lanes = e.width(x) / 2; lanes >= least; lanes /= 2) {
    Value low = vector::ExtractStridedSliceOp::create(e.b, x, ArrayRef<int64_t>{0}, ArrayRef<int64_t>{lanes},
                                                      ArrayRef<int64_t>{1});
    Value high = vector::ExtractStridedSliceOp::create(e.b, x, ArrayRef<int64_t>{lanes}, ArrayRef<int64_t>{lanes},
                                                       ArrayRef<int64_t>{1});
    x = combine(e, low, high);
  }
  Value first = vector::ExtractOp::create(e.b, x, int64_t{0});
  return e.width(x) > 1 ? combine(e, first, vector::ExtractOp::create(e.b, x, int64_t{1})) : first;
}

Type mpt::runningType(Type element, NumericsAttr numerics) {
  Type type = computeType(element);
  if (auto wide = numerics ? dyn_cast<FloatType>(numerics.getAcc()) : FloatType(); wide && isa<FloatType>(type))
    type = wide.getWidth() > type.getIntOrFloatBitWidth() ? wide : type;
  return type;
}

Accumulator mpt::accumulatorOf(ReduceOp op) {
  Type type = runningType(elementOf(op.getX()), op.getNumericsAttr());
  return {op.getKind(), type, type, elementOf(op.getX()).isUnsignedInteger(64)};
}

/// The type of 16 bits that has every element of `x`, also where they are widened, or magnitudes; null without one.
static Type narrowTypeOf(Value x) {
  auto element = dyn_cast<FloatType>(elementOf(x));
  if (element && element.getWidth() == 16)
    return element;
  if (auto abs = x.getDefiningOp<AbsOp>())
    return narrowTypeOf(abs.getX());
  auto cast = x.getDefiningOp<CastOp>();
  return cast && element && isa<FloatType>(elementOf(cast.getX())) &&
                 elementOf(cast.getX()).getIntOrFloatBitWidth() == 16 && element.getWidth() > 16
             ? elementOf(cast.getX())
             : Type();
}

Type mpt::narrowExtreme(ReduceOp op) {
  bool isExtreme = op.getKind() == ReduceKind::max || op.getKind() == ReduceKind::min;
  return isExtreme ? narrowTypeOf(op.getX()) : Type();
}

Accumulator mpt::gatheringAccumulator(ReduceOp op, bool everyElement) {
  Accumulator a = accumulatorOf(op);
  if (Type narrow = narrowExtreme(op))
    return {a.kind, narrow, a.total};
  if (a.type.isF32() && (op.getKind() == ReduceKind::sum || op.getKind() == ReduceKind::mean))
    a.total = Float64Type::get(op.getContext());
  return {a.kind, everyElement ? a.total : a.type, a.total, a.isWord};
}

Value mpt::finishSum(ElementEmitter &e, Value sum, Type element) {
  return e.round(isa<FloatType>(element) ? MathBuilder(e).toFloat(sum, computeType(element)) : sum, element);
}

/// A sum of integers, as their type wraps it, by their number, which the type need not hold; 0 of none.
static Value meanOfIntegers(ElementEmitter &e, ReduceOp op, Value sum) {
  Type element = elementOf(op.getX()), held = sum.getType();
  int64_t extent = reducedExtent(op);
  if (extent == 0)
    return sum;
  sum = e.round(sum, element);
  bool isLong = getElementTypeOrSelf(held).isInteger(64);
  Type wide = e.typeLike(e.b.getI64Type(), sum);
  if (!isLong)
    sum = element.isInteger(1) ? Value(arith::ExtUIOp::create(e.b, wide, sum)) : arith::ExtSIOp::create(e.b, wide, sum);
  Value count = e.constantLike(sum, APInt(64, extent));
  Value mean = element.isUnsignedInteger(64) ? Value(arith::DivUIOp::create(e.b, sum, count))
                                             : Value(arith::DivSIOp::create(e.b, sum, count));
  return isLong ? mean : Value(arith::TruncIOp::create(e.b, held, mean));
}

Value mpt::finishReduction(ElementEmitter &e, ReduceOp op, Value value) {
  MathBuilder m(e);
  if (op.getKind() == ReduceKind::mean) {
    int64_t extent = reducedExtent(op);
    // A device divides FP64 in thirty instructions. The product is off by 2^-52 of itself, of which FP32 sees nothing.
    bool byReciprocal = e.target.keepsFloatOps && getElementTypeOrSelf(value).isF64() && !elementOf(op.getY()).isF64();
    if (byReciprocal)
      value = m.mul(value, 1 / static_cast<double>(extent));
    else if (isa<FloatType>(getElementTypeOrSelf(value)))
      value = m.div(value, m.c(value, static_cast<double>(extent)));
    else
      value = meanOfIntegers(e, op, value);
  }
  Type type = elementOf(op.getY());
  return finishSum(e, value, type);
}

SmallVector<int64_t> mpt::keptAxes(ReduceOp op) {
  SmallVector<int64_t> kept;
  for (int64_t i = 0, rank = rankOf(op.getX()); i < rank; ++i)
    if (!llvm::is_contained(op.getAxes(), i))
      kept.push_back(i);
  return kept;
}

int64_t mpt::reducedExtent(ReduceOp op) {
  int64_t extent = 1;
  for (int64_t axis : op.getAxes())
    extent *= tensorType(op.getX()).getDimSize(axis);
  return extent;
}

bool mpt::dependsOn(Operation *user, Operation *source) {
  SetVector<Operation *> slice;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  (void)getBackwardSlice(user, &slice, options);
  return slice.contains(source);
}
