// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers, and the ops that use them: casts with any rounding, dropout, random_uniform.
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Philox 4x32-10 (Salmon et al., SC 2011): the word of number `position` in stream `stream` under key (seed, step).
/// The upper half of the step word is a part of the stream (see fusion-key-streams). Words are kept in 64-bit lanes
/// with anything in the upper halves: a 32 x 32 -> 64 product reads the lower halves only.
class Philox {
public:
  Philox(ElementEmitter &e, Value key, int64_t stream) : e(e), b(e.b), stream(stream) {
    seed = e.element(key, {IndexExpr(0)});
    step = e.element(key, {IndexExpr(1)});
  }

  /// i32 words for the elements at `linear` positions.
  Value words(const IndexExpr &linear) {
    // Four neighbours share a counter, where vectors begin at multiples of four.
    if (unsigned lanes = e.space.alignedWidth(linear, 4); lanes >= 8)
      return neighbours(linear, lanes);
    Value position = e.indexAs(linear, b.getI64Type());
    Words state = rounds(arith::ShRUIOp::create(b, position, number(position, 2)));
    Value word = arith::AndIOp::create(b, position, number(position, 3));
    Value result = state[3];
    for (int i = 2; i >= 0; --i) {
      Value is = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, word, number(word, i));
      result = arith::SelectOp::create(b, is, state[i], result);
    }
    return arith::TruncIOp::create(b, e.typeLike(b.getI32Type(), result), result);
  }

private:
  using Words = std::array<Value, 4>;

  /// The words of consecutive positions, a counter for each four of them.
  Value neighbours(const IndexExpr &linear, unsigned lanes) {
    unsigned blocks = lanes / 4;
    Value first = e.at(e.space.depth(linear), [&] {
      Value position = arith::IndexCastOp::create(b, b.getI64Type(), e.index(linear));
      return Value(arith::ShRUIOp::create(b, position, number(position, 2)));
    });
    SmallVector<Attribute> numbers;
    for (unsigned i = 0; i < blocks; ++i)
      numbers.push_back(b.getI64IntegerAttr(i));
    auto type = VectorType::get(blocks, b.getI64Type());
    Value offsets = arith::ConstantOp::create(b, DenseElementsAttr::get(type, numbers));
    Words state = rounds(arith::AddIOp::create(b, e.splat(first, blocks), offsets));
    // Words 0 and 1, and 2 and 3, of a block make one 64-bit lane each; then the pairs of a block stand together.
    auto pair = [&](Value low, Value high) -> Value {
      Value upper = arith::ShLIOp::create(b, high, number(high, 32));
      return arith::OrIOp::create(b, lower(low), upper);
    };
    SmallVector<int64_t> order;
    for (unsigned i = 0; i < blocks; ++i)
      order.append({i, i + blocks});
    Value pairs = vector::ShuffleOp::create(b, pair(state[0], state[1]), pair(state[2], state[3]), order);
    return vector::BitCastOp::create(b, VectorType::get(lanes, b.getI32Type()), pairs);
  }

  Value number(Value like, uint64_t value) { return e.constantLike(like, APInt(64, value)); }
  Value lower(Value x) { return arith::AndIOp::create(b, x, number(x, 0xffffffffu)); }
  Value upper(Value x) { return arith::ShRUIOp::create(b, x, number(x, 32)); }
  Value product(Value x, uint32_t factor) { return arith::MulIOp::create(b, lower(x), number(x, factor)); }
  Value exclusive(Value x, Value y, Value z) { return arith::XOrIOp::create(b, arith::XOrIOp::create(b, x, y), z); }

  /// The four words at `counter` (i64, lanes of blocks).
  Words rounds(Value counter) {
    unsigned lanes = e.width(counter);
    Value c0 = counter, c1 = upper(counter);
    Value c2 = e.splat(arith::AddIOp::create(b, upper(step), number(step, static_cast<uint32_t>(stream))), lanes);
    Value c3 = e.splat(step, lanes);
    Value k0 = seed, k1 = upper(seed);
    for (int round = 0; round < 10; ++round) {
      if (round) {
        k0 = arith::AddIOp::create(b, k0, number(k0, 0x9E3779B9u));
        k1 = arith::AddIOp::create(b, k1, number(k1, 0xBB67AE85u));
      }
      Value p0 = product(c0, 0xD2511F53u), p1 = product(c2, 0xCD9E8D57u);
      c0 = exclusive(upper(p1), c1, e.splat(k0, lanes));
      c2 = exclusive(upper(p0), c3, e.splat(k1, lanes));
      c1 = p1;
      c3 = p0;
    }
    return {c0, c1, c2, c3};
  }

  ElementEmitter &e;
  ImplicitLocOpBuilder &b;
  int64_t stream;
  Value seed, step;
};

IndexExpr positionOf(ElementEmitter &e, Operation *op, ArrayRef<IndexExpr> at) {
  return e.space.linearize(at, cast<RankedTensorType>(op->getResult(0).getType()).getShape());
}

struct DropoutModel : LoopLowering::ExternalModel<DropoutModel, DropoutOp> {
  bool readsOwnIndex(Operation *, unsigned index) const { return index == 0; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto dropout = cast<DropoutOp>(op);
    Value x = e.element(dropout.getX(), at);
    double ratio = dropout.getRatio().convertToDouble();
    if (ratio == 0)
      return x;
    Value word = Philox(e, dropout.getKey(), dropout.getStream()).words(positionOf(e, op, at));
    Value limit = e.constantLike(word, APInt(32, static_cast<uint64_t>(std::floor(ratio * 4294967296.0))));
    Value kept = arith::CmpIOp::create(e.b, arith::CmpIPredicate::uge, word, limit);
    Value both[] = {kept, x};
    e.unify(both);
    MathBuilder m(e);
    // Division, not multiplication by a rounded reciprocal: the interpreter's rounding.
    Value scaled = m.div(both[1], m.c(both[1], 1 - ratio));
    return e.round(m.select(both[0], scaled, m.c(scaled, 0)), getElementTypeOrSelf(dropout.getType()));
  }
};

struct UniformModel : LoopLowering::ExternalModel<UniformModel, RandomUniformOp> {
  bool isCheap(Operation *) const { return false; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto random = cast<RandomUniformOp>(op);
    Type element = getElementTypeOrSelf(random.getType());
    Value word = Philox(e, random.getKey(), random.getStream()).words(positionOf(e, op, at));
    word = arith::ShRUIOp::create(e.b, word, e.constantLike(word, APInt(32, 8)));
    MathBuilder m(e);
    Value unit = arith::UIToFPOp::create(e.b, e.typeLike(computeType(element), word), word);
    double low = random.getLow().convertToDouble(), high = random.getHigh().convertToDouble();
    return e.round(m.add(m.mul(m.mul(unit, 0x1p-24), high - low), low), element);
  }
};

/// Largest finite value of a float type.
double largest(FloatType type) { return llvm::APFloat::getLargest(type.getFloatSemantics()).convertToDouble(); }

struct CastModel : LoopLowering::ExternalModel<CastModel, CastOp> {
  bool readsOwnIndex(Operation *, unsigned index) const { return index == 0; }
  bool isCheap(Operation *op) const { return !mlir::cast<CastOp>(op).getKey(); }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto cast = mlir::cast<CastOp>(op);
    Type from = getElementTypeOrSelf(cast.getX().getType()), to = getElementTypeOrSelf(cast.getType());
    Value x = e.element(cast.getX(), at);
    if (from == to)
      return x;
    bool fromFloat = isa<FloatType>(from), toFloat = isa<FloatType>(to);
    if (!fromFloat && !toFloat)
      return integer(e, x, from, to);
    if (!fromFloat) {
      Type target = e.typeLike(computeType(to), x);
      return e.round(from.isInteger(1) ? Value(arith::UIToFPOp::create(e.b, target, x))
                                       : Value(arith::SIToFPOp::create(e.b, target, x)),
                     to);
    }
    MathBuilder m(e);
    if (to.isInteger(1))
      return m.compare(arith::CmpFPredicate::UNE, x, m.c(x, 0));
    if (to.isUnsignedInteger())
      return toUnsigned(m, x, to);
    if (!toFloat)
      return arith::FPToSIOp::create(e.b, e.typeLike(to, x), x);
    if (cast.getRounding() == Rounding::Stochastic) {
      Value word = Philox(e, cast.getKey(), cast.getStream()).words(positionOf(e, op, at));
      return stochastic(e, op, x, word, mlir::cast<FloatType>(to), cast.getOverflow());
    }
    bool narrows = mlir::cast<FloatType>(to).getWidth() < mlir::cast<FloatType>(from).getWidth();
    if (cast.getRounding() == Rounding::TowardZero && narrows)
      x = truncated(e, op, x, mlir::cast<FloatType>(to));
    if (cast.getOverflow() == Overflow::Saturate)
      x = saturated(m, x, mlir::cast<FloatType>(to));
    return e.round(m.toFloat(x, computeType(to)), to);
  }

  /// Truncated, and limited to the type's range; NaN gives 0.
  static Value toUnsigned(MathBuilder &m, Value x, Type to) {
    ElementEmitter &e = m.emitter();
    unsigned bits = to.getIntOrFloatBitWidth(), held = computeType(to).getIntOrFloatBitWidth();
    const llvm::fltSemantics &semantics = cast<FloatType>(getElementTypeOrSelf(x)).getFloatSemantics();
    auto limit =
        llvm::scalbn(llvm::APFloat::getOne(semantics), static_cast<int>(bits), llvm::RoundingMode::NearestTiesToEven);
    if (bits == held)
      limit.next(/*nextDown=*/true);
    x = m.select(m.compare(arith::CmpFPredicate::OGT, x, m.c(x, 0)), x, m.c(x, 0));
    Value whole =
        arith::FPToUIOp::create(e.b, e.typeLike(computeType(to), x), m.min(x, m.c(x, limit.convertToDouble())));
    return bits == held ? whole
                        : arith::MinUIOp::create(e.b, whole, e.constantLike(whole, APInt::getLowBitsSet(held, bits)));
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

} // namespace

void mpt::attachCastModels(MLIRContext *context) {
  CastOp::attachInterface<CastModel>(*context);
  DropoutOp::attachInterface<DropoutModel>(*context);
  RandomUniformOp::attachInterface<UniformModel>(*context);
}
