// SPDX-License-Identifier: Apache-2.0
// Trigonometric and hyperbolic functions, written out in ops of core.
#include "Trigonometry.h"

using namespace mlir;
using namespace mpt;

static LogicalResult inType(Binder &b, bool asDouble, llvm::function_ref<Value(Value)> f) {
  if (failed(b.need(1)))
    return failure();
  if (!b.isFloat(0))
    return b.fail() << "expected a float tensor, got " << b.in(0).getType();
  Value x = asDouble ? b.cast(b.in(0), b.builder.getF64Type()) : b.widen(b.in(0));
  return b.done(b.cast(f(x), b.element(0)));
}

static LogicalResult inWide(Binder &b, llvm::function_ref<Value(Value)> f) { return inType(b, false, f); }
/// In FP64: differences near zero keep FP32's precision there.
static LogicalResult inDouble(Binder &b, llvm::function_ref<Value(Value)> f) { return inType(b, true, f); }

static Value half(Binder &b, Value x) { return b.mul(x, 0.5); }
static Value root(Binder &b, Value x) { return b.make<SqrtOp>(x); }
static Value square(Binder &b, Value x) { return b.mul(x, x); }
static Value quotient(Binder &b, Value x, Value y) { return b.div(x, y); }

/// atan x = 2 atan(x / (1 + sqrt(1 + x^2))), four times, then its series: |x| < 0.1 leaves less than 1e-22.
static Value arcTangent(Binder &b, Value x) {
  // Beyond 1 the reciprocal's, so that the square stays finite.
  Value large = b.compare(Predicate::gt, b.make<AbsOp>(x), 1.0);
  Value z = b.select(large, b.make<ReciprocalOp>(b.select(large, x, b.splatLike(x, 1))), x);
  for (int i = 0; i < 4; ++i)
    z = quotient(b, z, b.add(root(b, b.add(square(b, z), 1.0)), 1.0));
  Value z2 = square(b, z), sum = b.splatLike(z, 1.0 / 21);
  for (int k = 19; k >= 1; k -= 2)
    sum = b.add(b.neg(b.mul(sum, z2)), 1.0 / k);
  Value angle = b.mul(b.mul(sum, z), 16.0);
  constexpr double rightAngle = 1.57079632679489661923;
  return b.select(large, b.sub(b.mul(b.make<SignOp>(x), rightAngle), angle), angle);
}

static Value arcSine(Binder &b, Value x) {
  // (1 - x)(1 + x) does not cancel near 1.
  Value cosine = root(b, b.mul(b.add(b.neg(x), 1.0), b.add(x, 1.0)));
  return b.mul(arcTangent(b, quotient(b, x, b.add(cosine, 1.0))), 2.0);
}

LogicalResult mpt::importTan(Binder &b) {
  return inWide(b, [&](Value x) { return quotient(b, b.make<SinOp>(x), b.make<CosOp>(x)); });
}
LogicalResult mpt::importAtan(Binder &b) {
  return inWide(b, [&](Value x) { return arcTangent(b, x); });
}
LogicalResult mpt::importAsin(Binder &b) {
  return inWide(b, [&](Value x) { return arcSine(b, x); });
}
LogicalResult mpt::importAcos(Binder &b) {
  return inDouble(b, [&](Value x) { return b.add(b.neg(arcSine(b, x)), 1.57079632679489661923); });
}
static Value hyperbolicCosine(Binder &b, Value x) { return half(b, b.add(b.make<ExpOp>(x), b.make<ExpOp>(b.neg(x)))); }
LogicalResult mpt::importCosh(Binder &b) {
  return inWide(b, [&](Value x) { return hyperbolicCosine(b, x); });
}
LogicalResult mpt::importSinh(Binder &b) {
  return inWide(b, [&](Value x) { return b.mul(b.make<TanhOp>(x), hyperbolicCosine(b, x)); });
}
LogicalResult mpt::importAsinh(Binder &b) {
  return inDouble(b, [&](Value x) {
    // A sign that is never 0, unlike the absolute value's slope: the gradient at 0 is 1.
    Value sign = b.select(b.compare(Predicate::lt, x, 0.0), b.splatLike(x, -1), b.splatLike(x, 1));
    return b.mul(sign, b.make<LogOp>(b.add(b.mul(x, sign), root(b, b.add(square(b, x), 1.0)))));
  });
}
LogicalResult mpt::importAcosh(Binder &b) {
  return inDouble(b, [&](Value x) { return b.make<LogOp>(b.add(x, root(b, b.mul(b.add(x, -1.0), b.add(x, 1.0))))); });
}
LogicalResult mpt::importAtanh(Binder &b) {
  return inDouble(b, [&](Value x) { return half(b, b.make<LogOp>(quotient(b, b.add(x, 1.0), b.add(b.neg(x), 1.0)))); });
}
