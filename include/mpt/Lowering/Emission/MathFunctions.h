// SPDX-License-Identifier: Apache-2.0
// Vectorisable elementary functions of f32 and f64 values. Errors are in units in the last place of the result.
#ifndef MPT_LOWERING_EMISSION_MATHFUNCTIONS_H
#define MPT_LOWERING_EMISSION_MATHFUNCTIONS_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace mpt {

/// Arithmetic on scalars or vectors of one float type.
class MathBuilder {
public:
  explicit MathBuilder(ElementEmitter &emitter) : e(emitter), b(emitter.b) {}

  using V = mlir::Value;
  V add(V x, V y) { return mlir::arith::AddFOp::create(b, x, y); }
  V sub(V x, V y) { return mlir::arith::SubFOp::create(b, x, y); }
  V mul(V x, V y) { return mlir::arith::MulFOp::create(b, x, y); }
  V div(V x, V y) { return mlir::arith::DivFOp::create(b, x, y); }
  /// x / y for a finite x and a y that is normal or infinite: no special value has to come out right.
  V ratio(V x, V y) {
    using namespace mlir::arith;
    return e.target.keepsFloatOps && !isDouble(x) ? V(DivFOp::create(b, x, y, FastMathFlags::arcp)) : div(x, y);
  }
  V add(V x, double y) { return add(x, c(x, y)); }
  V sub(V x, double y) { return sub(x, c(x, y)); }
  V mul(V x, double y) { return mul(x, c(x, y)); }
  V neg(V x) { return mlir::arith::NegFOp::create(b, x); }
  V abs(V x) { return mlir::math::AbsFOp::create(b, x); }
  V sqrt(V x) { return mlir::math::SqrtOp::create(b, x); }
  V max(V x, V y) { return mlir::arith::MaximumFOp::create(b, x, y); }
  V min(V x, V y) { return mlir::arith::MinimumFOp::create(b, x, y); }
  V copySign(V x, V sign) { return mlir::math::CopySignOp::create(b, x, sign); }
  V roundEven(V x) { return mlir::math::RoundEvenOp::create(b, x); }
  V compare(mlir::arith::CmpFPredicate predicate, V x, V y) { return mlir::arith::CmpFOp::create(b, predicate, x, y); }
  V less(V x, double y) { return compare(mlir::arith::CmpFPredicate::OLT, x, c(x, y)); }
  V greater(V x, double y) { return compare(mlir::arith::CmpFPredicate::OGT, x, c(x, y)); }
  V select(V condition, V x, V y) { return mlir::arith::SelectOp::create(b, condition, x, y); }
  V c(V like, double value) { return e.constantLike(like, value); }
  /// x y + z, fused where the target has it.
  V fma(V x, V y, V z) { return e.target.fma ? V(mlir::math::FmaOp::create(b, x, y, z)) : add(mul(x, y), z); }
  V fma(V x, V y, double z) { return fma(x, y, c(x, z)); }
  V fma(V x, double y, V z) { return fma(x, c(x, y), z); }
  /// Coefficients from the highest power down.
  V polynomial(V x, llvm::ArrayRef<double> coefficients);

  V exp(V x);       ///< 1.5 ulp
  V exp2(V x);      ///< 2 ulp for normal results; a device may flush others to 0
  V expm1(V x);     ///< 3 ulp
  V log(V x);       ///< 2.5 ulp
  V log1pUnit(V x); ///< log(1 + x) for x in [0, 1], 2.5 ulp
  /// 3 ulp. `besideOne`: 1e-7 is enough, since 1 or more is added.
  V tanh(V x, bool besideOne = false);
  V sigmoid(V x);                     ///< 3 ulp
  V erf(V x, bool besideOne = false); ///< as tanh
  /// Of a device: 2^-13 of the value for x of -4.8 or more, 1e-6 for others, which are never 0; -infinity is one of
  /// them.
  V coarseGelu(V x, bool byTanh);
  V sin(V x); ///< 2 ulp for |x| < 2^30
  V cos(V x);
  V pow(V x, V y);                                 ///< 1 ulp in f32 (computed in f64)
  V softplus(V x);                                 ///< 3 ulp
  V rsqrt(V x) { return div(c(x, 1.0), sqrt(x)); } ///< 1.5 ulp

  V toFloat(V x, mlir::Type type);
  ElementEmitter &emitter() { return e; }

private:
  bool isDouble(V x) { return mlir::getElementTypeOrSelf(x).isF64(); }
  mlir::Type intLike(V x) { return e.typeLike(b.getIntegerType(isDouble(x) ? 64 : 32), x); }
  V integer(V like, int64_t value);
  /// n and r with x = n ln 2 + r, |r| <= ln 2 / 2.
  std::pair<V, V> reduceExp(V x);
  /// e^r - 1 for |r| <= ln 2 / 2.
  V expm1Reduced(V r);
  /// x 2^n, n a whole number, in two steps so that neither overflows.
  V scaleByPower(V x, V n);
  /// log((1 + s) / (1 - s)) by its series, `terms` terms after the first.
  V logSeries(V s, unsigned terms);
  V trigonometric(V x, bool cosine);
  /// tanh and erf where 2^x and reciprocals are one instruction.
  V tanhOfDevice(V x, bool besideOne);
  V erfOfDevice(V x, bool besideOne);

  ElementEmitter &e;
  mlir::ImplicitLocOpBuilder &b;
};

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_MATHFUNCTIONS_H
