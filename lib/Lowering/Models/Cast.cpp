// SPDX-License-Identifier: Apache-2.0
// Loop form of cast, with any rounding and overflow mode; blocks of 8-bit codes in simpler ops.
#include "Decompositions.h"
#include "Philox.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Models/Models.h"
#include "mpt/Support/DynamicMap.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Largest finite value of a float type.
double largest(FloatType type) { return llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble(); }

struct CastModel : LoopLowering::ExternalModel<CastModel, CastOp> {
  bool readsOwnIndex(Operation *, unsigned index) const { return index == 0; }
  bool isCheap(Operation *op) const { return !mlir::cast<CastOp>(op).getKey(); }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto cast = mlir::cast<CastOp>(op);
    Type from = getElementTypeOrSelf(cast.getX().getType()), to = getElementTypeOrSelf(cast.getType());
    Value x = e.element(cast.getX(), at);
    MathBuilder m(e);
    bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(to);
    if (from == to)
      return toFloat && cast.getOverflow() == Overflow::Saturate ? saturated(m, x, mlir::cast<FloatType>(to)) : x;
    if (!fromFloat && !toFloat)
      return integer(e, x, from, to);
    if (!fromFloat) {
      // BF16 reaches beyond the integers that FP32 holds.
      bool isWide = to.isBF16() && getElementTypeOrSelf(x).getIntOrFloatBitWidth() > 24;
      Type target = e.typeLike(isWide ? e.b.getF64Type() : computeType(to), x);
      Value real = from.isInteger(1) || from.isUnsignedInteger(64) ? Value(arith::UIToFPOp::create(e.b, target, x))
                                                                   : Value(arith::SIToFPOp::create(e.b, target, x));
      return e.round(isWide ? roundedToOdd(m, real) : real, to);
    }
    if (to.isInteger(1))
      return m.compare(arith::CmpFPredicate::UNE, x, m.c(x, 0));
    if (to.isUnsignedInteger())
      return toUnsigned(m, x, to);
    if (!toFloat)
      return toSigned(m, x, to);
    if (getElementTypeOrSelf(x).isF64() && computeType(to) != to)
      x = roundedToOdd(m, x);
    if (cast.getRounding() == Rounding::Stochastic) {
      Value word = randomWord(e, cast.getKey(), cast.getStream(), op, at);
      return stochastic(e, op, x, word, mlir::cast<FloatType>(to), cast.getOverflow());
    }
    // FP16 and BF16 are as wide as each other, and neither holds the other's values.
    bool isExact = llvm::APFloat::isRepresentableBy(mlir::cast<FloatType>(from).getFloatSemantics(),
                                                    mlir::cast<FloatType>(to).getFloatSemantics());
    if (cast.getRounding() == Rounding::TowardZero && !isExact)
      x = truncated(e, op, x, mlir::cast<FloatType>(to));
    if (cast.getOverflow() == Overflow::Saturate)
      x = saturated(m, x, mlir::cast<FloatType>(to));
    return e.round(m.toFloat(x, computeType(to)), to);
  }

  /// An f32 that rounds to any narrower type as the f64 x does: the nearest one, or of its two neighbours the one with
  /// an odd last bit where x lies between them. No tie of a narrower type is odd in f32, so that the second rounding
  /// sees on which side of it x lies (S. Boldo, G. Melquiond, "Emulation of FMA and Correctly Rounded Sums", 2008).
  static Value roundedToOdd(MathBuilder &m, Value x) {
    ElementEmitter &e = m.emitter();
    Value close = m.toFloat(x, e.b.getF32Type()), wide = m.toFloat(close, e.b.getF64Type());
    Value bits = arith::BitcastOp::create(e.b, e.typeLike(e.b.getI32Type(), close), close);
    Value isOutside = m.compare(arith::CmpFPredicate::OGT, m.abs(wide), m.abs(x));
    Value odd = arith::SubIOp::create(e.b, bits, arith::ExtUIOp::create(e.b, bits.getType(), isOutside));
    odd = arith::OrIOp::create(e.b, odd, e.constantLike(bits, APInt(32, 1)));
    odd = arith::BitcastOp::create(e.b, close.getType(), odd);
    return m.select(m.compare(arith::CmpFPredicate::ONE, wide, x), odd, close);
  }

  /// Truncated, and limited to the type's range; NaN gives 0.
  static Value toUnsigned(MathBuilder &m, Value x, Type to) {
    ElementEmitter &e = m.emitter();
    unsigned bits = to.getIntOrFloatBitWidth(), held = computeType(to).getIntOrFloatBitWidth();
    const llvm::fltSemantics &semantics = cast<FloatType>(getElementTypeOrSelf(x)).getFloatSemantics();
    auto limit =
        llvm::scalbn(llvm::APFloat::getOne(semantics), static_cast<int>(bits), llvm::RoundingMode::NearestTiesToEven);
    Value isBeyond = m.compare(arith::CmpFPredicate::OGE, x, m.c(x, limit.convertToDouble()));
    limit.next(/*nextDown=*/true);
    x = m.select(m.compare(arith::CmpFPredicate::OGT, x, m.c(x, 0)), x, m.c(x, 0));
    x = m.min(x, m.c(x, limit.convertToDouble()));
    Value whole = arith::FPToUIOp::create(e.b, e.typeLike(computeType(to), x), x);
    return arith::SelectOp::create(e.b, isBeyond, e.constantLike(whole, APInt::getLowBitsSet(held, bits)), whole);
  }

  /// Truncated, and limited to the type's range; NaN gives 0. Processors differ in their results for both.
  static Value toSigned(MathBuilder &m, Value x, Type to) {
    ElementEmitter &e = m.emitter();
    unsigned bits = to.getIntOrFloatBitWidth();
    const llvm::fltSemantics &semantics = mlir::cast<FloatType>(getElementTypeOrSelf(x)).getFloatSemantics();
    auto limit = llvm::scalbn(llvm::APFloat::getOne(semantics), static_cast<int>(bits) - 1,
                              llvm::RoundingMode::NearestTiesToEven);
    double most = limit.convertToDouble();
    limit.next(/*nextDown=*/true);
    Value safe = m.select(m.compare(arith::CmpFPredicate::UNO, x, x), m.c(x, 0), x);
    safe = m.select(m.less(safe, -most), m.c(x, -most), safe);
    Value isBeyond = m.compare(arith::CmpFPredicate::OGE, safe, m.c(x, most));
    safe = m.select(isBeyond, m.c(x, limit.convertToDouble()), safe);
    Value whole = arith::FPToSIOp::create(e.b, e.typeLike(to, x), safe);
    return arith::SelectOp::create(e.b, isBeyond, e.constantLike(whole, APInt::getSignedMaxValue(bits)), whole);
  }

  static Value integer(ElementEmitter &e, Value x, Type from, Type to) {
    if (to.isInteger(1))
      return arith::CmpIOp::create(e.b, arith::CmpIPredicate::ne, x, e.constantLike(x, 0.0));
    // Unsigned numbers are held in a wider type, where they are not negative.
    Type held = computeType(to), type = e.typeLike(held, x);
    unsigned a = getElementTypeOrSelf(x).getIntOrFloatBitWidth(), c = held.getIntOrFloatBitWidth();
    if (c < a)
      x = arith::TruncIOp::create(e.b, type, x);
    else if (c > a)
      x = from.isInteger(1) ? Value(arith::ExtUIOp::create(e.b, type, x)) : arith::ExtSIOp::create(e.b, type, x);
    return e.round(x, to);
  }

  /// Finite values and infinities limited to the type's finite range.
  static Value saturated(MathBuilder &m, Value x, FloatType to) {
    double limit = largest(to);
    return m.min(m.max(x, m.c(x, -limit)), m.c(x, limit));
  }

  /// The two neighbours of x in `to`: rounding to nearest, then a step toward zero where that went outward.
  static Value truncated(ElementEmitter &e, Operation *op, Value x, FloatType to) {
    if (!getElementTypeOrSelf(x).isF32())
      return e.fail(op, "expected f32 for a cast toward zero, got a wider type", to);
    const llvm::fltSemantics &semantics = to.getFloatSemantics();
    unsigned drop = 24 - llvm::APFloat::semanticsPrecision(semantics);
    // Below the smallest normal number the step is constant: remove multiples of it by a scaled truncation.
    double step = llvm::APFloat::getSmallest(semantics).convertToDouble();
    double normal = llvm::APFloat::getSmallestNormalized(semantics).convertToDouble();
    MathBuilder m(e);
    Value bits = arith::BitcastOp::create(e.b, e.typeLike(e.b.getI32Type(), x), x);
    Value masked = arith::AndIOp::create(e.b, bits, e.constantLike(bits, APInt(32, ~((1u << drop) - 1))));
    Value wide = arith::BitcastOp::create(e.b, x.getType(), masked);
    Value small = x;
    if (step > 1e-40)
      small = m.copySign(m.mul(math::FloorOp::create(e.b, m.mul(m.abs(x), 1 / step)), step), x);
    Value result = m.select(m.less(m.abs(x), normal), step > 1e-40 ? small : wide, wide);
    result = m.select(m.compare(arith::CmpFPredicate::UNO, x, x), x, result);
    // A finite number beyond the range stops at the largest one; infinity stays.
    Value beyond = arith::AndIOp::create(e.b, m.greater(m.abs(x), largest(to)), m.less(m.abs(x), INFINITY));
    return m.select(beyond, m.copySign(m.c(x, largest(to)), x), result);
  }

  /// Up or down to a neighbour with probability proportional to nearness: random bits added to the discarded ones.
  static Value stochastic(ElementEmitter &e, Operation *op, Value x, Value word, FloatType to, Overflow overflow) {
    if (!getElementTypeOrSelf(x).isF32())
      return e.fail(op, "expected f32 for stochastic rounding, got a wider type", to);
    MathBuilder m(e);
    Value both[] = {x, word};
    e.unify(both);
    x = both[0];
    const llvm::fltSemantics &semantics = to.getFloatSemantics();
    unsigned drop = 24 - llvm::APFloat::semanticsPrecision(semantics);
    Value random = arith::ShRUIOp::create(e.b, both[1], e.constantLike(both[1], APInt(32, 32 - drop)));
    Value bits = arith::BitcastOp::create(e.b, e.typeLike(e.b.getI32Type(), x), x);
    bits = arith::AddIOp::create(e.b, bits, random);
    bits = arith::AndIOp::create(e.b, bits, e.constantLike(bits, APInt(32, ~((1u << drop) - 1))));
    Value moved = arith::BitcastOp::create(e.b, x.getType(), bits);
    // Below the smallest normal number neighbours are one step apart. BF16's lie as FP32's do.
    double step = llvm::APFloat::getSmallest(semantics).convertToDouble();
    if (step > 1e-40) {
      Value count = m.mul(m.abs(x), 1 / step), whole = math::FloorOp::create(e.b, count);
      Value rest = m.mul(m.sub(count, whole), 4294967296.0);
      rest = arith::FPToUIOp::create(e.b, both[1].getType(), rest);
      Value sum = arith::AddIOp::create(e.b, rest, both[1]);
      Value carries = arith::CmpIOp::create(e.b, arith::CmpIPredicate::ult, sum, rest);
      Value up = m.select(carries, m.add(whole, 1.0), whole);
      double normal = llvm::APFloat::getSmallestNormalized(semantics).convertToDouble();
      moved = m.select(m.less(m.abs(x), normal), m.copySign(m.mul(up, step), x), moved);
    }
    moved = m.select(m.less(m.abs(x), INFINITY), moved, x);
    if (overflow == Overflow::Saturate)
      return saturated(m, moved, to);
    // A value of `to` by now, or beyond its range. BF16's range ends where FP32's does.
    if (to.isBF16())
      return moved;
    double beyond = llvm::APFloat::semanticsHasInf(semantics) ? INFINITY : NAN;
    return m.select(m.greater(m.abs(moved), largest(to)), m.copySign(m.c(moved, beyond), moved), moved);
  }
};

/// Values of codes and their scales, as a row a block.
struct Blocks : GraphBuilder {
  Blocks(OpBuilder &builder, Operation *op, int64_t count, int64_t block, bool isSigned)
      : GraphBuilder(builder, op->getLoc()), shape{count, block}, isSigned(isSigned) {}

  Value rows(Value x) { return shapeOf(x) == ArrayRef(shape) ? x : reshape(x, shape); }
  Value like(Value rows, Value whole) { return shapeOf(rows) == shapeOf(whole) ? rows : reshape(rows, shapeOf(whole)); }
  Value along(Value scales) { return broadcast(scales, shape, {0}); }
  template <size_t size> Value table(const std::array<float, size> &values) {
    return constant(DenseElementsAttr::get(RankedTensorType::get({size}, builder.getF32Type()), ArrayRef(values)));
  }

  SmallVector<int64_t, 2> shape;
  bool isSigned;
};

struct Encode : Decomposable::ExternalModel<Encode, EncodeBlocksOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = mlir::cast<EncodeBlocksOp>(operation);
    Blocks b(builder, op, countOf(op.getScales()), op.getBlock(), op.getIsSigned());
    Value x = b.rows(b.cast(op.getX(), builder.getF32Type()));
    Value amax = b.reduce(ReduceKind::max, b.make<AbsOp>(x), {1});
    Value scales = b.make<MaxOp>(amax, b.splatLike(amax, 1e-12)), codes;
    Type type = elementOf(op.getCodes());
    if (auto real = dyn_cast<FloatType>(type)) {
      scales = b.div(scales, b.splatLike(scales, largest(real)));
      Value shares = b.div(x, b.along(scales));
      if (!b.isSigned) { // as the boundaries of the map have it
        double least = llvm::APFloat::getSmallest(real.getFloatSemantics()).convertToDouble();
        Value isZero = b.compare(Predicate::eq, shares, 0.0);
        shares = b.select(isZero, shares, b.make<MaxOp>(shares, b.splatLike(shares, least)));
      }
      codes = b.cast(shares, type);
    } else {
      codes = b.make<BucketizeOp>(tensorType(x).clone(type), b.div(x, b.along(scales)),
                                  b.table(dynamicBoundaries(b.isSigned)));
    }
    return SmallVector<Value>{b.like(codes, op.getCodes()), b.cast(scales, elementOf(op.getScales()))};
  }
};

struct Decode : Decomposable::ExternalModel<Decode, DecodeBlocksOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = mlir::cast<DecodeBlocksOp>(operation);
    Blocks b(builder, op, countOf(op.getScales()), op.getBlock(), op.getIsSigned());
    Value codes = b.rows(op.getCodes()), scales = b.cast(op.getScales(), builder.getF32Type());
    Value x = isa<FloatType>(elementOf(codes)) ? b.cast(codes, builder.getF32Type())
                                               : b.make<GatherOp>(b.table(dynamicMap(b.isSigned)), codes, 0);
    x = b.cast(b.mul(x, b.along(scales)), elementOf(op.getX()));
    return SmallVector<Value>{b.like(x, op.getX())};
  }
};

} // namespace

void mpt::attachCastModels(MLIRContext *context) {
  CastOp::attachInterface<CastModel>(*context);
  EncodeBlocksOp::attachInterface<Encode>(*context);
  DecodeBlocksOp::attachInterface<Decode>(*context);
}
