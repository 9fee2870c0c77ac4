// SPDX-License-Identifier: Apache-2.0
// Codes of small types by tables: the number of each byte, and between which numbers the codes change.
#include "StorageTypes.h"

#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace mpt;
using llvm::APFloat;

namespace {
/// Floats whose codes count up with their magnitude.
struct Format {
  const llvm::fltSemantics *semantics = nullptr;
  unsigned bits = 8;
  bool hasSign = true, hasNegativeZero = false;
  std::optional<int64_t> nan; ///< its code
};
struct Whole {
  unsigned bits;
  bool isSigned;
};
} // namespace

static std::optional<Format> formatOf(int64_t type) {
  switch (type) { // numbers of TensorProto.DataType
  case 18:
    return Format{&APFloat::Float8E4M3FNUZ(), 8, true, false, 0x80};
  case 20:
    return Format{&APFloat::Float8E5M2FNUZ(), 8, true, false, 0x80};
  case 23:
    return Format{&APFloat::Float4E2M1FN(), 4, true, true, std::nullopt};
  case 24:
    return Format{&APFloat::Float8E8M0FNU(), 8, false, false, 0xff};
  default:
    return std::nullopt;
  }
}

static std::optional<Whole> wholeOf(int64_t type) {
  switch (type) {
  case 21:
    return Whole{4, false};
  case 22:
    return Whole{4, true};
  case 25:
    return Whole{2, false};
  case 26:
    return Whole{2, true};
  default:
    return std::nullopt;
  }
}

std::optional<std::pair<int64_t, int64_t>> mpt::storageRange(int64_t type) {
  std::optional<Whole> whole = wholeOf(type);
  if (!whole)
    return std::nullopt;
  int64_t count = int64_t(1) << whole->bits, low = whole->isSigned ? -count / 2 : 0;
  return std::make_pair(low, low + count - 1);
}

/// The number that a code stands for.
static double valueOf(const Format &format, int64_t code) {
  if (format.nan == code) // which APFloat makes an infinity of where a type has exponents alone
    return std::numeric_limits<double>::quiet_NaN();
  APFloat value(*format.semantics, APInt(format.bits, code));
  bool exact = false;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &exact);
  return value.convertToDouble();
}

Value mpt::decodeStorage(Binder &b, Value x, int64_t type) {
  std::optional<Format> format = formatOf(type);
  if (!format)
    return x;
  SmallVector<float> values;
  for (int64_t code = 0; code < int64_t(1) << format->bits; ++code)
    values.push_back(static_cast<float>(valueOf(*format, code)));
  auto table = RankedTensorType::get({static_cast<int64_t>(values.size())}, b.builder.getF32Type());
  Value codes = b.constant(DenseElementsAttr::get(table, ArrayRef<float>(values)));
  return b.make<GatherOp>(codes, b.cast(x, b.builder.getI64Type()), 0);
}

namespace {
/// The magnitudes from which on a number has the next code; the one beyond the last code is too large.
class Thresholds {
public:
  Thresholds(const Format &format, bool saturate, StringRef roundMode, bool isDouble)
      : roundMode(roundMode), isDouble(isDouble) {
    int64_t count = int64_t(1) << (format.bits - (format.hasSign ? 1 : 0));
    double value = valueOf(format, 0);
    for (last = 0; last + 1 < count && std::isfinite(valueOf(format, last + 1)); ++last) {
      double above = valueOf(format, last + 1);
      numbers.push_back(between(last, value, above, !format.hasSign));
      value = above;
    }
    double below = valueOf(format, last - 1);
    double beyond = format.hasSign ? value + (value - below) : value * 2;
    bool mayExceed = !saturate && format.nan && roundMode != "down";
    if (mayExceed)
      numbers.push_back(between(last, value, beyond, !format.hasSign));
  }

  SmallVector<double> numbers;
  int64_t last = 0; ///< code of the largest number

private:
  double next(double x) const {
    return isDouble ? std::nextafter(x, std::numeric_limits<double>::infinity())
                    : std::nextafter(static_cast<float>(x), std::numeric_limits<float>::infinity());
  }
  /// From where on `code`, which is `low`, gives way to the next, which is `high`.
  double between(int64_t code, double low, double high, bool byMode) const {
    if (byMode && roundMode == "up")
      return next(low);
    if (byMode && roundMode == "down")
      return high;
    double middle = low + (high - low) / 2;
    return code % 2 == 0 && !byMode ? next(middle) : middle; // ties go to even codes, in exponents up
  }

  StringRef roundMode;
  bool isDouble;
};
} // namespace

/// How many of the thresholds each of x's elements has reached.
static Value countReached(Binder &b, Value x, ArrayRef<double> numbers) {
  RankedTensorType type = tensorType(x);
  auto count = static_cast<int64_t>(numbers.size());
  SmallVector<int64_t> shape(type.getShape());
  shape.push_back(count);
  SmallVector<Attribute> values;
  for (double number : numbers)
    values.push_back(b.builder.getFloatAttr(type.getElementType(), number));
  auto tableType = RankedTensorType::get({count}, type.getElementType());
  Value table = b.broadcastTo(b.constant(DenseElementsAttr::get(tableType, values)), shape);
  Value spread = b.broadcast(x, shape, axisRange(0, type.getRank()));
  Value reached = b.cast(b.compare(Predicate::ge, spread, table), b.builder.getF32Type());
  return b.cast(b.sum(reached, {type.getRank()}), b.builder.getI32Type());
}

static Value encodeFloat(Binder &b, Value given, const Format &format, bool saturate, StringRef roundMode) {
  bool isDouble = tensorType(given).getElementType().isF64();
  Value x = b.cast(given, isDouble ? Type(b.builder.getF64Type()) : Type(b.builder.getF32Type()));
  Value size = b.make<AbsOp>(x);
  Thresholds thresholds(format, saturate, roundMode, isDouble);
  Value code = countReached(b, size, thresholds.numbers);
  auto number = [&](int64_t value) { return b.splatLike(code, static_cast<double>(value)); };
  Value isNan = b.make<IsNaNOp>(x);
  if (format.nan && static_cast<int64_t>(thresholds.numbers.size()) > thresholds.last)
    isNan = b.make<OrOp>(isNan, b.compare(Predicate::gt, code, number(thresholds.last)));
  if (!format.hasSign) // exponents alone: there is no number for infinity to become
    isNan = b.make<OrOp>(isNan, b.make<IsInfOp>(x));
  if (format.hasSign) {
    // The reciprocal tells a negative zero from a positive one.
    Value isNegative = b.compare(Predicate::lt, x, 0.0);
    Value minus = b.compare(Predicate::lt, b.make<ReciprocalOp>(x), 0.0);
    isNegative = format.hasNegativeZero ? Value(b.make<OrOp>(isNegative, minus))
                                        : Value(b.make<AndOp>(isNegative, b.compare(Predicate::gt, code, number(0))));
    code = b.select(isNegative, b.add(code, number(int64_t(1) << (format.bits - 1))), code);
  }
  if (format.nan)
    code = b.select(isNan, number(*format.nan), code);
  return b.cast(code, IntegerType::get(b.builder.getContext(), 8, IntegerType::Unsigned));
}

Value mpt::encodeStorage(Binder &b, Value x, int64_t type, bool saturate, StringRef roundMode) {
  if (std::optional<Format> format = formatOf(type))
    return encodeFloat(b, x, *format, saturate, roundMode);
  std::optional<Whole> whole = wholeOf(type);
  auto byte =
      IntegerType::get(b.builder.getContext(), 8, whole->isSigned ? IntegerType::Signless : IntegerType::Unsigned);
  double half = static_cast<double>(int64_t(1) << (whole->bits - 1));
  Value bits = b.cast(x, b.builder.getI32Type());
  bits = b.make<AndOp>(bits, b.splatLike(bits, 2 * half - 1));
  if (whole->isSigned)
    bits = b.add(b.make<XorOp>(bits, b.splatLike(bits, half)), -half);
  return b.cast(bits, byte);
}
