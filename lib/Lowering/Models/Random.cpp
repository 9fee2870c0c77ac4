// SPDX-License-Identifier: Apache-2.0
// Loop forms of dropout and random_uniform.
#include "Philox.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Models/Models.h"

using namespace mlir;
using namespace mpt;

namespace {

struct DropoutModel : LoopLowering::ExternalModel<DropoutModel, DropoutOp> {
  bool readsOwnIndex(Operation *, unsigned index) const { return index == 0; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto dropout = cast<DropoutOp>(op);
    Value x = e.element(dropout.getX(), at);
    double ratio = dropout.getRatio().convertToDouble();
    if (ratio == 0)
      return x;
    Value word = randomWord(e, dropout.getKey(), dropout.getStream(), op, at);
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
    Value word = randomWord(e, random.getKey(), random.getStream(), op, at);
    word = arith::ShRUIOp::create(e.b, word, e.constantLike(word, APInt(32, 8)));
    MathBuilder m(e);
    Value unit = arith::UIToFPOp::create(e.b, e.typeLike(computeType(element), word), word);
    double low = random.getLow().convertToDouble(), high = random.getHigh().convertToDouble();
    return e.round(m.add(m.mul(m.mul(unit, 0x1p-24), high - low), low), element);
  }
};

} // namespace

void mpt::attachRandomModels(MLIRContext *context) {
  DropoutOp::attachInterface<DropoutModel>(*context);
  RandomUniformOp::attachInterface<UniformModel>(*context);
}
