// SPDX-License-Identifier: Apache-2.0
// Constants, splats and conversions between stored and computed types.
// Matcher: numbers that were widened from a type, with another sign perhaps, or chosen among such, which rounding to it
// leaves alone.
#include "mpt/Lowering/Emission/ValueBuilder.h"

#include "Float8.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mpt;

Value ValueBuilder::indexConstant(int64_t value) { return arith::ConstantIndexOp::create(b, value); }

unsigned ValueBuilder::width(Value value) {
  auto type = dyn_cast<VectorType>(value.getType());
  return type ? type.getNumElements() : 1;
}

Type ValueBuilder::typeLike(Type type, Value like) {
  unsigned lanes = width(like);
  return lanes > 1 ? Type(VectorType::get(lanes, type)) : type;
}

static Attribute elementAttr(Type type, double value) {
  if (auto real = dyn_cast<FloatType>(type))
    return FloatAttr::get(real, value);
  return IntegerAttr::get(type, static_cast<int64_t>(value));
}

Value ValueBuilder::constant(Type type, double value) {
  return arith::ConstantOp::create(b, cast<TypedAttr>(elementAttr(type, value)));
}

static Value makeLike(ImplicitLocOpBuilder &b, Type type, Attribute element) {
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, element));
  return arith::ConstantOp::create(b, cast<TypedAttr>(element));
}

Value ValueBuilder::constantLike(Value like, double value) {
  return makeLike(b, like.getType(), elementAttr(getElementTypeOrSelf(like), value));
}

Value ValueBuilder::constantLike(Value like, APInt value) {
  Type type = getElementTypeOrSelf(like);
  unsigned bits = type.isIndex() ? 64 : type.getIntOrFloatBitWidth();
  value = value.zextOrTrunc(bits);
  return makeLike(b, like.getType(), IntegerAttr::get(type, value));
}

Value ValueBuilder::splat(Value value, unsigned lanes) {
  if (lanes <= 1 || width(value) > 1)
    return value;
  return vector::BroadcastOp::create(b, VectorType::get(lanes, value.getType()), value);
}

std::optional<double> ValueBuilder::numberIn(Value value) {
  if (auto spread = value.getDefiningOp<vector::BroadcastOp>())
    value = spread.getSource();
  FloatAttr single;
  DenseFPElementsAttr many;
  if (matchPattern(value, m_Constant(&single)))
    return single.getValueAsDouble();
  if (matchPattern(value, m_Constant(&many)) && many.isSplat())
    return many.getSplatValue<APFloat>().convertToDouble();
  return std::nullopt;
}

void ValueBuilder::unify(MutableArrayRef<Value> values) {
  unsigned lanes = 1;
  for (Value value : values)
    lanes = std::max(lanes, width(value));
  for (Value &value : values)
    value = splat(value, lanes);
}

Value ValueBuilder::widen(Value value) {
  Type type = getElementTypeOrSelf(value);
  if (computeType(type) == type)
    return value;
  Type f32 = b.getF32Type(), i32 = b.getI32Type();
  if (type.isF16() || target.keepsFloatOps)
    return arith::ExtFOp::create(b, typeLike(f32, value), value);
  if (type.isBF16()) {
    Value bits = arith::BitcastOp::create(b, typeLike(b.getIntegerType(16), value), value);
    bits = arith::ExtUIOp::create(b, typeLike(i32, value), bits);
    bits = arith::ShLIOp::create(b, bits, constantLike(bits, APInt(32, 16)));
    return arith::BitcastOp::create(b, typeLike(f32, value), bits);
  }
  return widenFloat8(*this, value);
}

/// f32 bits rounded to bf16 to nearest even, in the upper half; a NaN keeps its sign and becomes quiet.
static Value roundBFloat16Bits(ValueBuilder &e, Value value) {
  ImplicitLocOpBuilder &b = e.b;
  Value bits = arith::BitcastOp::create(b, e.typeLike(b.getI32Type(), value), value);
  auto number = [&](uint32_t n) { return e.constantLike(bits, APInt(32, n)); };
  Value odd = arith::AndIOp::create(b, arith::ShRUIOp::create(b, bits, number(16)), number(1));
  Value up = arith::AddIOp::create(b, bits, arith::AddIOp::create(b, odd, number(0x7fff)));
  Value quiet = arith::OrIOp::create(b, bits, number(0x400000));
  Value isNaN = arith::CmpFOp::create(b, arith::CmpFPredicate::UNO, value, value);
  return arith::SelectOp::create(b, isNaN, quiet, up);
}

Value ValueBuilder::widenUnsigned(Value value, Type type) {
  Type wide = computeType(type);
  return getElementTypeOrSelf(value) == wide ? value : arith::ExtUIOp::create(b, typeLike(wide, value), value);
}

/// Whether all lanes of `value` are one constant that `type` has.
static bool isConstantOf(Value value, FloatType type) {
  std::optional<double> number = ValueBuilder::numberIn(value);
  if (!number)
    return false;
  bool loses = false;
  (void)APFloat(*number).convert(type.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
  return !loses;
}

/// Whether `value` is FP32 whose lower 16 bits are zero by the operation that made its bits: a bf16 that was widened or
/// rounded without instructions for it.
static bool hasBFloat16Bits(Value value) {
  auto real = value.getDefiningOp<arith::BitcastOp>();
  Operation *bits = real && getElementTypeOrSelf(value).isF32() ? real.getIn().getDefiningOp() : nullptr;
  if (!isa_and_nonnull<arith::ShLIOp, arith::AndIOp>(bits))
    return false;
  APInt number;
  if (!matchPattern(bits->getOperand(1), m_ConstantInt(&number)))
    return false;
  return isa<arith::ShLIOp>(bits) ? number == 16 : number == 0xffff0000u;
}

/// Whether `value` is a number of `type` already: one that was widened, with another sign perhaps, or chosen among
/// such.
static bool isRounded(Value value, Type type) {
  Operation *op = value.getDefiningOp();
  if (auto widened = dyn_cast_or_null<arith::ExtFOp>(op))
    return getElementTypeOrSelf(widened.getIn()) == type;
  if (type.isBF16() && hasBFloat16Bits(value))
    return true;
  if (isa_and_nonnull<math::AbsFOp, arith::NegFOp>(op))
    return isRounded(op->getOperand(0), type);
  if (auto choice = dyn_cast_or_null<arith::SelectOp>(op))
    return isRounded(choice.getTrueValue(), type) && isRounded(choice.getFalseValue(), type);
  auto real = dyn_cast<FloatType>(type);
  return real && isConstantOf(value, real);
}

Value ValueBuilder::round(Value value, Type type) {
  if (computeType(type) == type || getElementTypeOrSelf(value) == type)
    return value;
  if (isRounded(value, type))
    return value;
  if (type.isUnsignedInteger()) {
    unsigned bits = type.getIntOrFloatBitWidth(), held = computeType(type).getIntOrFloatBitWidth();
    return bits == held ? value
                        : arith::AndIOp::create(b, value, constantLike(value, APInt::getLowBitsSet(held, bits)));
  }
  if (type.isF16() || target.keepsFloatOps || (type.isBF16() && target.bfloats)) {
    Value half = arith::TruncFOp::create(b, typeLike(type, value), value);
    return arith::ExtFOp::create(b, value.getType(), half);
  }
  if (type.isBF16()) {
    Value bits = roundBFloat16Bits(*this, value);
    bits = arith::AndIOp::create(b, bits, constantLike(bits, APInt(32, 0xffff0000u)));
    return arith::BitcastOp::create(b, value.getType(), bits);
  }
  return roundFloat8(*this, value, type);
}

Value ValueBuilder::narrow(Value value, Type type) {
  if (getElementTypeOrSelf(value) == type)
    return value;
  if (type.isUnsignedInteger()) {
    Type stored = b.getIntegerType(type.getIntOrFloatBitWidth());
    return getElementTypeOrSelf(value) == stored ? value : arith::TruncIOp::create(b, typeLike(stored, value), value);
  }
  bool converts = target.keepsFloatOps || (type.isBF16() && target.bfloats);
  Operation *op = converts ? value.getDefiningOp() : nullptr;
  if (auto widened = dyn_cast_or_null<arith::ExtFOp>(op); widened && getElementTypeOrSelf(widened.getIn()) == type)
    return widened.getIn();
  // Signs change in 16 bits too, two numbers at a time.
  if (target.keepsFloatOps && isa_and_nonnull<math::AbsFOp, arith::NegFOp>(op) && type.getIntOrFloatBitWidth() == 16) {
    Value inner = narrow(op->getOperand(0), type);
    return isa<math::AbsFOp>(op) ? Value(math::AbsFOp::create(b, inner)) : Value(arith::NegFOp::create(b, inner));
  }
  if (type.isF16() || target.keepsFloatOps)
    return arith::TruncFOp::create(b, typeLike(type, value), value);
  if (type.isBF16()) {
    Value bits = arith::BitcastOp::create(b, typeLike(b.getI32Type(), value), value);
    bits = arith::ShRUIOp::create(b, bits, constantLike(bits, APInt(32, 16)));
    bits = arith::TruncIOp::create(b, typeLike(b.getIntegerType(16), value), bits);
    return arith::BitcastOp::create(b, typeLike(type, value), bits);
  }
  return narrowFloat8(*this, value, type);
}
