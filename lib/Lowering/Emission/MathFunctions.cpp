// SPDX-License-Identifier: Apache-2.0
// Elementary functions by argument reduction and polynomials: Taylor series where they converge fast, and fits for the
// tail of erf and for devices. Special values follow C's annex F.
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;
using namespace mpt;
using P = arith::CmpFPredicate;
using V = Value;

V MathBuilder::integer(V like, int64_t value) {
  Type type = intLike(like);
  auto attr = IntegerAttr::get(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, DenseElementsAttr::get(vector, attr));
  return arith::ConstantOp::create(b, attr);
}

V MathBuilder::polynomial(V x, ArrayRef<double> coefficients) {
  V result = c(x, coefficients.front());
  for (double coefficient : coefficients.drop_front())
    result = fma(result, x, coefficient);
  return result;
}

V MathBuilder::toFloat(V x, Type type) {
  Type from = getElementTypeOrSelf(x);
  if (from == type)
    return x;
  Type to = e.typeLike(type, x);
  if (type.getIntOrFloatBitWidth() > from.getIntOrFloatBitWidth())
    return arith::ExtFOp::create(b, to, x);
  if (e.target.keepsFloatOps && type.getIntOrFloatBitWidth() == 16)
    return e.narrow(x, type);
  return arith::TruncFOp::create(b, to, x);
}

std::pair<V, V> MathBuilder::reduceExp(V x) {
  V n = roundEven(mul(x, M_LOG2E));
  // ln 2 in two parts, the first with trailing zeros so that n times it is exact.
  double high = isDouble(x) ? 0x1.62e42fee00000p-1 : 0x1.62e400p-1;
  double low = isDouble(x) ? 0x1.a39ef35793c76p-33 : M_LN2 - 0x1.62e400p-1;
  V r = fma(n, -high, x);
  return {n, fma(n, -low, r)};
}

V MathBuilder::expm1Reduced(V r) {
  SmallVector<double> coefficients;
  double factorial = 1;
  for (int k = 2, last = isDouble(r) ? 14 : 7; k <= last; ++k)
    coefficients.insert(coefficients.begin(), 1 / (factorial *= k));
  return fma(mul(r, r), polynomial(r, coefficients), r);
}

V MathBuilder::scaleByPower(V x, V n) {
  unsigned mantissa = isDouble(x) ? 52 : 23;
  int64_t bias = isDouble(x) ? 1023 : 127;
  V whole = arith::FPToSIOp::create(b, intLike(x), n);
  V half = arith::ShRSIOp::create(b, whole, integer(x, 1)), rest = arith::SubIOp::create(b, whole, half);
  auto power = [&](V k) -> V {
    V bits = arith::ShLIOp::create(b, arith::AddIOp::create(b, k, integer(x, bias)), integer(x, mantissa));
    return arith::BitcastOp::create(b, x.getType(), bits);
  };
  return mul(mul(x, power(half)), power(rest));
}

V MathBuilder::exp(V x) {
  if (e.target.keepsFloatOps && !isDouble(x))
    return math::ExpOp::create(b, x);
  // Limited to where results are neither 0 nor infinite, plus a margin in which they become so; NaN passes through.
  double low = isDouble(x) ? -746 : -104, high = isDouble(x) ? 710 : 89;
  V limited = select(less(x, low), c(x, low), select(greater(x, high), c(x, high), x));
  V safe = select(compare(P::UNO, x, x), c(x, 0), limited);
  auto [n, r] = reduceExp(safe);
  V result = scaleByPower(add(expm1Reduced(r), 1.0), n);
  return select(compare(P::UNO, x, x), x, result);
}

V MathBuilder::exp2(V x) {
  return e.target.keepsFloatOps && !isDouble(x) ? V(math::Exp2Op::create(b, x)) : exp(mul(x, M_LN2));
}

V MathBuilder::expm1(V x) {
  double high = isDouble(x) ? 710 : 89;
  V limited = select(less(x, -40), c(x, -40), select(greater(x, high), c(x, high), x));
  V safe = select(compare(P::UNO, x, x), c(x, 0), limited);
  auto [n, r] = reduceExp(safe);
  V power = scaleByPower(c(x, 1.0), n), result = fma(expm1Reduced(r), power, sub(power, 1.0));
  result = select(compare(P::OEQ, power, c(x, INFINITY)), c(x, INFINITY), result);
  return select(compare(P::UNO, x, x), x, result);
}

V MathBuilder::logSeries(V s, unsigned terms) {
  SmallVector<double> coefficients;
  for (int k = terms; k >= 1; --k)
    coefficients.push_back(2.0 / (2 * k + 1));
  V square = mul(s, s);
  return fma(mul(s, square), polynomial(square, coefficients), mul(s, 2.0));
}

V MathBuilder::log(V x) {
  bool wide = isDouble(x);
  int64_t mantissa = wide ? 52 : 23;
  // Subnormals are scaled into the normal range first.
  V tiny = less(x, wide ? 0x1p-1022 : 0x1p-126);
  V scaled = select(tiny, mul(x, wide ? 0x1p54 : 0x1p25), x);
  V bits = arith::BitcastOp::create(b, intLike(x), scaled);
  // Exponent such that the rest of the number lies in [sqrt(1/2), sqrt(2)).
  V origin = integer(x, wide ? 0x3fe6a09e667f3bcd : 0x3f3504f3);
  V exponent = arith::ShRSIOp::create(b, arith::SubIOp::create(b, bits, origin), integer(x, mantissa));
  V rest = arith::SubIOp::create(b, bits, arith::ShLIOp::create(b, exponent, integer(x, mantissa)));
  V m = arith::BitcastOp::create(b, x.getType(), rest);
  V n = arith::SIToFPOp::create(b, x.getType(), exponent);
  n = select(tiny, sub(n, wide ? 54 : 25), n);
  V s = ratio(sub(m, 1.0), add(m, 1.0));
  double high = wide ? 0x1.62e42fee00000p-1 : 0x1.62e400p-1;
  double low = wide ? 0x1.a39ef35793c76p-33 : M_LN2 - 0x1.62e400p-1;
  V result = add(mul(n, high), fma(n, low, logSeries(s, wide ? 11 : 5)));
  result = select(compare(P::OEQ, x, c(x, 0)), c(x, -INFINITY), result);
  result = select(compare(P::OEQ, x, c(x, INFINITY)), x, result);
  return select(compare(P::ULT, x, c(x, 0)), c(x, NAN), result);
}

V MathBuilder::log1pUnit(V x) { return logSeries(ratio(x, add(x, 2.0)), isDouble(x) ? 18 : 7); }

/// 1 - 2 / (1 + e^2|x|); near 0, where that loses digits, an odd polynomial.
V MathBuilder::tanhOfDevice(V x, bool besideOne) {
  auto byPower = [&](V t) { return fma(ratio(c(x, 1.0), add(exp(mul(t, 2.0)), 1.0)), -2.0, c(x, 1.0)); };
  if (besideOne)
    return byPower(x);
  V t = abs(x), square = mul(x, x);
  V near = fma(
      mul(x, square),
      polynomial(square, {0.016437581184543734, -0.052671813594588224, 0.13320725058193034, -0.333329466367408}), x);
  return select(less(t, 0.55), near, copySign(byPower(t), x));
}

V MathBuilder::tanh(V x, bool besideOne) {
  if (e.target.keepsFloatOps && !isDouble(x))
    return tanhOfDevice(x, besideOne);
  // e^-2|x| - 1 lies in (-1, 0] and is exact enough near 0 for the quotient to be.
  V t = expm1(mul(abs(x), -2.0));
  return copySign(ratio(t, add(t, 2.0)), x);
}

V MathBuilder::sigmoid(V x) {
  V t = exp(neg(abs(x)));
  V numerator = select(compare(P::OLT, x, c(x, 0)), t, c(x, 1.0));
  return ratio(numerator, add(t, 1.0));
}

V MathBuilder::softplus(V x) {
  V tail = log1pUnit(exp(neg(abs(x))));
  return add(max(x, c(x, 0)), tail);
}

/// Near 0 an odd polynomial, else 1 - 2^p(|x|): both by least maximal error. Beyond 4, 1 is the nearest number.
V MathBuilder::erfOfDevice(V x, bool besideOne) {
  V t = abs(x), limited = min(t, c(x, 4.0));
  auto byPower = [&](ArrayRef<double> exponent) {
    return copySign(sub(c(x, 1.0), exp2(polynomial(limited, exponent))), x);
  };
  if (besideOne)
    return byPower({-4.4352789103796986e-05, 0.00043694388163223463, -0.0014603807858441006, -0.0008251662111187244,
                    0.02830188726165065, -0.14850664745181716, -0.918409814487077, -1.6279093259380517,
                    2.1717637619258025e-08});
  V near = mul(x, polynomial(mul(x, x), {-0.0005723943578153324, 0.004938213738881647, -0.026727317851217902,
                                         0.11280680844848401, -0.37612380321758415, 1.1283791317371266}));
  V far = byPower({-0.0017286831131188458, 0.02187147869872874, -0.12959178263302323, -0.9416067373385186,
                   -1.6140767073178088, -0.0032841199183535346});
  return select(less(t, 0.98), near, far);
}

V MathBuilder::erf(V x, bool besideOne) {
  if (isDouble(x)) { // a library call for each lane: f64 models are not a performance target
    if (e.width(x) == 1)
      return math::ErfOp::create(b, x);
    SmallVector<V> lanes;
    for (int64_t i = 0; i < e.width(x); ++i)
      lanes.push_back(math::ErfOp::create(b, V(vector::ExtractOp::create(b, x, i))));
    return vector::FromElementsOp::create(b, x.getType(), lanes);
  }
  if (e.target.keepsFloatOps)
    return erfOfDevice(x, besideOne);
  V t = abs(x), square = mul(x, x);
  SmallVector<double> series;
  double factorial = 1;
  for (int n = 0; n <= 10; ++n) {
    series.insert(series.begin(), M_2_SQRTPI * (n % 2 ? -1 : 1) / (factorial * (2 * n + 1)));
    factorial *= n + 1;
  }
  V near = mul(x, polynomial(square, series));
  // log(erfc(t)) on [0.98, 4.05]; beyond, 1 - erfc(t) is 1.
  V limited = select(greater(t, 4.0), c(t, 4.0), t);
  V fit =
      polynomial(limited, {-1.9316110786539376e-05, 0.0004111941456197976, -0.004044559963289156, 0.024748523967260995,
                           -0.1076460737732032, -0.6339794541159613, -1.1291734699154732, 9.76467445355587e-05});
  V far = sub(c(x, 1.0), exp(fit));
  far = copySign(select(compare(P::UNO, x, x), x, far), x);
  return select(less(t, 0.98), near, far);
}

/// GELU(x) = max(x, 0) - |x| P(|x|) with P the upper tail probability of the normal distribution: one power of two,
/// whose exponent is a polynomial by least maximal error of P. Nothing cancels, so that the error is relative on both
/// sides.
V MathBuilder::coarseGelu(V x, bool byTanh) {
  V t = min(abs(x), c(x, byTanh ? 4.8 : 5.6));
  V exponent =
      byTanh ? polynomial(t, {-5.347550177248195e-05, 0.001191792543977499, -0.009854059666395187, 0.0317716971039772,
                              -0.08029471337795258, -0.4430525600910187, -1.1544932126998901, -0.9998841285705566})
             : polynomial(t, {2.81304819509387e-05, -0.000695696275215596, 0.007716026157140732, -0.05265359207987785,
                              -0.4594189524650574, -1.1510089635849, -1.000004768371582});
  return fma(neg(t), exp2(exponent), max(x, c(x, 0)));
}

V MathBuilder::trigonometric(V x, bool cosine) {
  // The reduction to |r| <= pi/4 is in f64, which carries products with pi/2 up to 2^30.
  V wide = toFloat(x, b.getF64Type());
  V n = roundEven(mul(wide, M_2_PI));
  V r = fma(n, -0x1.921fb54400000p0, wide);
  r = fma(n, -0x1.0b4611a626331p-34, r);
  // Beyond 2^52 angles count as 0, which keeps results in [-1, 1]; results of infinities stay NaN.
  V known = compare(P::OLT, abs(wide), c(wide, 0x1p52));
  V quadrant = select(known, n, c(wide, 0));
  r = select(known, r, sub(wide, wide));
  V k = arith::FPToSIOp::create(b, e.typeLike(b.getI64Type(), x), quadrant);
  Type element = getElementTypeOrSelf(x);
  r = toFloat(r, element);
  V square = mul(r, r);
  auto series = [&](int first) {
    SmallVector<double> coefficients;
    double factorial = 1;
    int last = isDouble(x) ? 18 : 12;
    for (int i = 1; i <= last + first; ++i) {
      factorial *= i;
      if (i % 2 == first)
        coefficients.insert(coefficients.begin(), ((i / 2) % 2 ? -1 : 1) / factorial);
    }
    if (first == 0)
      coefficients.push_back(1.0);
    return polynomial(square, coefficients);
  };
  V sine = mul(r, series(1)), cos = series(0);
  auto bit = [&](V value, int64_t mask) -> V {
    V number = e.constantLike(value, APInt(64, mask));
    V masked = arith::AndIOp::create(b, value, number);
    return arith::CmpIOp::create(b, arith::CmpIPredicate::ne, masked, e.constantLike(value, APInt(64, 0)));
  };
  if (cosine)
    k = arith::AddIOp::create(b, k, e.constantLike(k, APInt(64, 1)));
  V result = select(bit(k, 1), cos, sine);
  return select(bit(k, 2), neg(result), result);
}
V MathBuilder::sin(V x) { return trigonometric(x, false); }
V MathBuilder::cos(V x) { return trigonometric(x, true); }

V MathBuilder::pow(V x, V y) {
  Type element = getElementTypeOrSelf(x);
  V a = toFloat(x, b.getF64Type()), p = toFloat(y, b.getF64Type());
  V magnitude = exp(mul(p, log(abs(a))));
  // A negative base needs a whole exponent; an odd one keeps the sign, also of -0.
  auto both = [&](V p, V q) -> V { return arith::AndIOp::create(b, p, q); };
  auto negate = [&](V p) -> V { return arith::XOrIOp::create(b, p, e.constantLike(p, APInt(64, 1))); };
  V half = mul(p, 0.5);
  V whole = compare(P::OEQ, roundEven(p), p), even = compare(P::OEQ, roundEven(half), half);
  V minus = compare(P::OLT, copySign(c(a, 1.0), a), c(a, 0));
  V result = select(both(minus, both(whole, negate(even))), neg(magnitude), magnitude);
  V invalid = both(both(compare(P::OLT, a, c(a, 0)), negate(whole)), compare(P::ONE, abs(a), c(a, INFINITY)));
  result = select(invalid, c(a, NAN), result);
  // |x| = 1 with an infinite exponent, and every x with exponent 0, give 1.
  V one = compare(P::OEQ, abs(a), c(a, 1.0)), infiniteExponent = compare(P::OEQ, abs(p), c(p, INFINITY));
  result = select(arith::AndIOp::create(b, one, infiniteExponent), c(a, 1.0), result);
  result = select(compare(P::OEQ, p, c(p, 0)), c(a, 1.0), result);
  result = select(compare(P::OEQ, a, c(a, 1.0)), c(a, 1.0), result);
  return toFloat(result, element);
}
