// SPDX-License-Identifier: Apache-2.0
// Casts with their rounding and overflow modes.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

/// Truncation toward zero; values beyond the type's range give its nearest bound, NaN gives 0.
static int64_t truncate(double x, IntegerType type) {
  if (type.getWidth() == 1)
    return x != 0.0;
  if (std::isnan(x))
    return 0;
  bool isUnsigned = type.isUnsigned();
  double bound = std::ldexp(1.0, static_cast<int>(type.getWidth()) - (isUnsigned ? 0 : 1));
  if (x >= bound)
    return isUnsigned ? wrapInteger(-1, type) : static_cast<int64_t>((UINT64_C(1) << (type.getWidth() - 1)) - 1);
  if (x <= (isUnsigned ? 0.0 : -bound))
    return isUnsigned ? 0 : static_cast<int64_t>(UINT64_MAX << (type.getWidth() - 1));
  return isUnsigned && type.getWidth() == 64 ? static_cast<int64_t>(static_cast<uint64_t>(x)) : static_cast<int64_t>(x);
}

static void castToInteger(const Tensor &x, Tensor &y) {
  auto type = cast<IntegerType>(y.getElementType());
  if (x.isFloat()) {
    llvm::transform(x.reals(), y.writeInts().begin(), [&](double value) { return truncate(value, type); });
  } else if (type.getWidth() == 1) {
    llvm::transform(x.ints(), y.writeInts().begin(), [](int64_t value) { return value != 0; });
  } else {
    llvm::copy(x.ints(), y.writeInts().begin());
  }
}

/// An integer as a number that any float type of fewer digits rounds as it would the integer: digits that FP64 cannot
/// hold are left in its last bit.
static double odd(uint64_t magnitude) {
  int excess = 64 - llvm::countl_zero(magnitude) - 53;
  if (excess <= 0)
    return static_cast<double>(magnitude);
  bool isInexact = magnitude & ((UINT64_C(1) << excess) - 1);
  return std::ldexp(static_cast<double>((magnitude >> excess) | isInexact), excess);
}
static double odd(int64_t x) { return x < 0 ? -odd(-static_cast<uint64_t>(x)) : odd(static_cast<uint64_t>(x)); }
static double odd(double x) { return x; }

static void castToFloat(CastOp op, const Tensor &x, Tensor &y, InterpreterFrame &frame) {
  auto type = cast<FloatType>(y.getElementType());
  Rounding rounding = op.getRounding();
  Overflow overflow = op.getOverflow();
  auto convert = [&](auto round) {
    auto write = [&](auto in) {
      llvm::transform(in, y.writeReals().begin(), [&](auto value) {
        return round(type.isF64() || frame.isOracle() ? static_cast<double>(value) : odd(value));
      });
    };
    x.isFloat() ? write(x.reals()) : x.isUnsigned64() ? write(x.words()) : write(x.ints());
  };
  if (frame.isOracle())
    return convert([](double value) { return value; });
  if (rounding == Rounding::NearestEven && overflow == Overflow::Infinity)
    return withRounding(type, [&](auto round) {
      // NaN keeps its payload.
      convert([&](double value) { return std::isnan(value) ? value : round(value); });
    });
  FloatFormat format(type);
  if (rounding != Rounding::Stochastic)
    return convert([&](double value) { return format.round(value, rounding, overflow); });
  RandomWords words(frame.get(op.getKey()), op.getStream());
  convert([&, i = uint64_t(0)](double value) mutable { return format.round(value, rounding, overflow, words[i++]); });
}

static LogicalResult interpretCast(CastOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  if (y.isFloat())
    castToFloat(op, x, y, frame);
  else
    castToInteger(x, y);
  frame.set(op.getY(), std::move(y));
  return success();
}

namespace {
/// Stochastic rounding draws bits by position, so that its results differ where operands do not.
struct CastPattern : EvaluationPattern::ExternalModel<CastPattern, CastOp> {
  AccessPattern getAccessPattern(Operation *op) const {
    return cast<CastOp>(op).getKey() ? AccessPattern::Elements : AccessPattern::Pointwise;
  }
};
} // namespace

void mpt::attachCastRules(MLIRContext *context) {
  attachRule<CastOp, interpretCast>(context);
  attachDecompositions<EncodeBlocksOp, DecodeBlocksOp>(context);
  CastOp::attachInterface<CastPattern>(*context);
}
