// 8-bit floats by integer arithmetic (OCP 8-bit floating point specification): E4M3FN and E5M2.
#include "mpt/Lowering/ElementEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {
struct Format {
  unsigned mantissa, bias;
  uint32_t largest, overflow; ///< largest finite magnitude, and what lies beyond it
};
} // namespace

static Format formatOf(Type type) {
  return isa<Float8E5M2Type>(type) ? Format{2, 15, 0x7b, 0x7c} : Format{3, 7, 0x7e, 0x7f};
}

Value ElementEmitter::widenFloat8(Value value) {
  Type type = getElementTypeOrSelf(value), f32 = b.getF32Type(), i32 = b.getI32Type();
  Format format = formatOf(type);
  Value bits = arith::BitcastOp::create(b, typeLike(b.getIntegerType(8), value), value);
  bits = arith::ExtUIOp::create(b, typeLike(i32, value), bits);
  auto number = [&](uint32_t n) { return constantLike(bits, APInt(32, n)); };
  Value magnitude = arith::AndIOp::create(b, bits, number(0x7f));
  Value sign = arith::ShLIOp::create(b, arith::AndIOp::create(b, bits, number(0x80)), number(24));
  // Exponent and mantissa in place of f32's; the product with a power of two corrects the bias, subnormals included.
  Value scaled = arith::ShLIOp::create(b, magnitude, number(23 - format.mantissa));
  scaled = arith::BitcastOp::create(b, typeLike(f32, value), scaled);
  scaled = arith::MulFOp::create(b, scaled, constantLike(scaled, std::ldexp(1.0, 127 - format.bias)));
  Value result = arith::BitcastOp::create(b, bits.getType(), scaled);
  if (format.overflow == 0x7c) {
    Value infinite = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, magnitude, number(0x7c));
    result = arith::SelectOp::create(b, infinite, number(0x7f800000), result);
  }
  Value isNaN =
      arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, magnitude, number(format.overflow == 0x7c ? 0x7c : 0x7e));
  result = arith::SelectOp::create(b, isNaN, number(0x7fc00000), result);
  return arith::BitcastOp::create(b, scaled.getType(), arith::OrIOp::create(b, result, sign));
}

Value ElementEmitter::narrowFloat8(Value value, Type type, bool saturate) {
  Format format = formatOf(type);
  Type i32 = typeLike(b.getI32Type(), value);
  Value bits = arith::BitcastOp::create(b, i32, value);
  auto number = [&](uint32_t n) { return constantLike(bits, APInt(32, n)); };
  auto compare = [&](arith::CmpIPredicate predicate, Value a, uint32_t n) -> Value {
    return arith::CmpIOp::create(b, predicate, a, number(n));
  };
  unsigned drop = 23 - format.mantissa;
  Value sign = arith::ShRUIOp::create(b, arith::AndIOp::create(b, bits, number(0x80000000u)), number(24));
  Value magnitude = arith::AndIOp::create(b, bits, number(0x7fffffff));
  Value odd = arith::AndIOp::create(b, arith::ShRUIOp::create(b, magnitude, number(drop)), number(1));
  Value rounded = arith::AddIOp::create(b, magnitude, arith::AddIOp::create(b, odd, number((1u << (drop - 1)) - 1)));
  Value normal = arith::SubIOp::create(b, arith::ShRUIOp::create(b, rounded, number(drop)),
                                       number((127 - format.bias) << format.mantissa));
  // Subnormal results: adding a number whose unit is the format's smallest step rounds to that step.
  uint32_t anchorBits = (127 + 24 - format.bias - format.mantissa) << 23;
  Value anchor = arith::BitcastOp::create(b, value.getType(), number(anchorBits));
  Value sum = arith::AddFOp::create(b, arith::BitcastOp::create(b, value.getType(), magnitude), anchor);
  Value small = arith::SubIOp::create(b, arith::BitcastOp::create(b, i32, sum), number(anchorBits));
  Value isSmall = compare(arith::CmpIPredicate::ult, magnitude, (128 - format.bias) << 23);
  Value result = arith::SelectOp::create(b, isSmall, small, normal);
  Value beyond = arith::OrIOp::create(
      b, compare(arith::CmpIPredicate::uge, magnitude, 0x7f800000),
      arith::AndIOp::create(b, compare(arith::CmpIPredicate::uge, magnitude, (128 - format.bias) << 23),
                            compare(arith::CmpIPredicate::ugt, result, format.largest)));
  result = arith::SelectOp::create(b, beyond, number(saturate ? format.largest : format.overflow), result);
  result = arith::SelectOp::create(b, compare(arith::CmpIPredicate::ugt, magnitude, 0x7f800000), number(0x7f), result);
  result = arith::OrIOp::create(b, result, sign);
  result = arith::TruncIOp::create(b, typeLike(b.getIntegerType(8), value), result);
  return arith::BitcastOp::create(b, typeLike(type, value), result);
}
