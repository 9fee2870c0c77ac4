// SPDX-License-Identifier: Apache-2.0
// Export of casts; the roundings that ONNX's Cast does not have are written out.
#include "Philox.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

double largestOf(FloatType type) {
  APFloat top = APFloat::getLargest(type.getFloatSemantics());
  bool loses;
  top.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return top.convertToDouble();
}

/// A rounding that Cast does not have, in FP64, where all of it is exact: the distance of neighbours by the power of
/// two at or below |x| (Rump, Ogita, Oishi, SISC 31(1), 2008, 3.6), the count of such distances, and a carry. In
/// portable files the same in FP32, exact too, with as many random bits as it holds.
OnnxValue roundAway(OnnxWriter &w, CastOp op, FloatType to) {
  Arithmetic a(w, w.innerType());
  const llvm::fltSemantics &format = to.getFloatSemantics();
  double largest = largestOf(to), infinity = std::numeric_limits<double>::infinity();
  int digits = APFloat::semanticsPrecision(format), least = APFloat::semanticsMinExponent(format);
  bool saturates = op.getOverflow() == Overflow::Saturate, truncates = op.getRounding() == Rounding::TowardZero;
  int held = w.innerType().getFPMantissaWidth(), wordBits = std::min(32, held);
  OnnxValue x = a.in(op.getX()), magnitude = w.node("Abs", {x}), size = magnitude;
  if (!a.type.isF64()) // the product below stays finite
    size = w.node("Min", {size, a.number(2 * largest)});
  OnnxValue q = a.mul(size, std::ldexp(1.0, held - 1) + 1);
  OnnxValue power = a.sub(q, a.mul(q, 1 - std::ldexp(1.0, -held)));
  OnnxValue gap = a.mul(w.node("Max", {power, a.number(std::ldexp(1.0, least))}), std::ldexp(1.0, 1 - digits));
  OnnxValue parts = a.div(size, gap), count = w.node("Floor", {parts});
  if (!truncates) {
    OnnxValue fraction = w.node("Floor", {a.mul(a.sub(parts, count), std::ldexp(1.0, wordBits))});
    Type index = IntegerType::get(op.getContext(), 64), flag = IntegerType::get(op.getContext(), 1);
    OnnxValue words = randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY()));
    if (wordBits < 32)
      words = w.node("Div", {words, w.integer(INT64_C(1) << (32 - wordBits))});
    OnnxValue sum = a.add(fraction, w.cast(words, index, a.type));
    OnnxValue carry = w.node("GreaterOrEqual", {sum, a.number(std::ldexp(1.0, wordBits))});
    count = a.add(count, w.cast(carry, flag, a.type));
  }
  OnnxValue rounded = a.mul(count, gap), zero = a.number(0);
  OnnxValue fits = w.node("LessOrEqual", {rounded, a.number(largest)});
  rounded = w.node("Where", {fits, rounded, a.number(saturates || truncates ? largest : infinity)});
  rounded = w.node("Where", {w.node("Less", {x, zero}), w.node("Neg", {rounded}), rounded});
  // Zeros keep their sign, NaN stays; infinity is beyond the range.
  OnnxValue special = saturates ? w.node("Clip", {x, a.number(-largest), a.number(largest)}) : x;
  OnnxValue ordinary =
      w.node("And", {w.node("Greater", {magnitude, zero}), w.node("Less", {magnitude, a.number(infinity)})});
  return w.node("Where", {ordinary, rounded, special});
}

OnnxValue exportCast(CastOp op, OnnxWriter &w) {
  Type from = elementOf(op.getX()), to = elementOf(op.getY());
  auto real = dyn_cast<FloatType>(to);
  bool saturates = op.getOverflow() == Overflow::Saturate;
  OnnxValue x = w.get(op.getX());
  if (real && op.getRounding() != Rounding::NearestEven) {
    x = roundAway(w, op, real);
  } else if (real && saturates && real.getWidth() > 8) { // Cast saturates for 8-bit types alone
    Type wide = isa<FloatType>(from) ? Type(wideType(from)) : Type(w.innerType());
    double largest = largestOf(real);
    x = w.node("Clip", {w.cast(x, from, wide), w.scalar(wide, -largest), w.scalar(wide, largest)});
  }
  SmallVector<OnnxAttribute> attributes{{"to", int64_t(onnxElementType(to))}};
  if (real && real.getWidth() == 8)
    attributes.emplace_back("saturate", int64_t(saturates && op.getRounding() == Rounding::NearestEven));
  return w.node("Cast", {x}, attributes);
}

} // namespace

void mpt::addCastRules(ExportRules &rules) {
  addRule<CastOp>(rules, [](CastOp op, OnnxWriter &w) { return Values{exportCast(op, w)}; });
}
