// SPDX-License-Identifier: Apache-2.0
// Philox 4x32-10 on vectors.
#include "Philox.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <array>

using namespace mlir;
using namespace mpt;

namespace {

/// Words are kept in 64-bit lanes with anything in the upper halves: a 32 x 32 -> 64 multiplication reads the lower
/// halves only.
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

} // namespace

Value mpt::randomWord(ElementEmitter &e, Value key, int64_t stream, Operation *op, ArrayRef<IndexExpr> at) {
  return Philox(e, key, stream).words(e.space.linearize(at, shapeOf(op->getResult(0))));
}
