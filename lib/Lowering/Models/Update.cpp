// SPDX-License-Identifier: Apache-2.0
// The further optimizers in simpler core ops.
#include "Update.h"

#include "Decompositions.h"
#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Interfaces/Interfaces.h"
#include "mpt/Interfaces/OptimizerUpdate.h"

using namespace mlir;
using namespace mpt;

namespace {

double number(const APFloat &value) { return value.convertToDouble(); }

/// One update while it is written out: everything is computed in the parameter's type, scalars of the rate in FP64.
struct Update : GraphBuilder {
  template <typename Op>
  Update(Op op, OpBuilder &builder)
      : GraphBuilder(builder, op.getLoc()), p(op.getParam()), type(elementOf(p)), g(cast(op.getGrad(), type)),
        lr(cast(op.getLr(), builder.getF64Type())) {}

  /// A scalar in every element of the parameter's shape, in its type.
  Value spread(Value scalar) { return everywhere(*this, cast(scalar, type), p); }
  /// a x + b y; b y alone where a is 0.
  Value blend(double a, Value x, double b, Value y) { return add(mul(x, a), mul(y, b)); }
  void decayGradient(double decay) {
    if (decay != 0)
      g = add(g, mul(p, decay));
  }
  Value squares(Value x) { return sum(mul(x, x), allAxes(x)); }
  Value norm(Value x) { return make<SqrtOp>(squares(x)); }
  Value sqrt(Value x) { return make<SqrtOp>(x); }
  /// 1 - beta^t.
  Value correction(Value t, double beta) { return add(neg(make<PowOp>(splatLike(t, beta), t)), 1.0); }
  Value positive(Value x) { return compare(Predicate::gt, x, 0.0); }

  Value p;
  Type type;
  Value g, lr;
};

struct Momentum : Decomposable::ExternalModel<Momentum, MomentumOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<MomentumOp>(operation);
    Update u(op, builder);
    double alpha = number(op.getAlpha()), beta = number(op.getBeta());
    u.decayGradient(number(op.getNormCoefficient()));
    Value fresh = u.g;
    if (beta != 1) {
      Value later = u.compare(Predicate::gt, op.getStep(), 0.0);
      fresh = u.select(everywhere(u, later, u.p), u.mul(u.g, beta), u.g);
    }
    Value next = u.add(u.mul(u.cast(op.getSlot(), u.type), alpha), fresh);
    Value step = op.getNesterov() ? u.add(u.g, u.mul(next, alpha)) : next;
    return SmallVector<Value>{u.sub(u.p, u.mul(u.spread(u.lr), step)), u.cast(next, elementOf(op.getSlot()))};
  }
};

struct AdamHat : Decomposable::ExternalModel<AdamHat, AdamHatOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdamHatOp>(operation);
    Update u(op, builder);
    double beta1 = number(op.getBeta1()), beta2 = number(op.getBeta2());
    u.decayGradient(number(op.getNormCoefficient()));
    Value m = u.blend(beta1, u.cast(op.getMoment1(), u.type), 1 - beta1, u.g);
    Value v = u.blend(beta2, u.cast(op.getMoment2(), u.type), 1 - beta2, u.mul(u.g, u.g));
    Value t = u.cast(op.getStep(), builder.getF64Type());
    Value corrected = u.div(u.mul(u.lr, u.sqrt(u.correction(t, beta2))), u.correction(t, beta1));
    Value rate = u.select(u.positive(t), corrected, u.lr);
    Value next = u.sub(u.p, u.mul(u.spread(rate), u.div(m, u.add(u.sqrt(v), number(op.getEpsilon())))));
    if (double post = number(op.getNormCoefficientPost()))
      next = u.mul(next, 1 - post);
    if (double late = number(op.getLateDecay()))
      next = u.sub(next, u.mul(u.spread(u.mul(u.lr, late)), next));
    return SmallVector<Value>{next, u.cast(m, elementOf(op.getMoment1())), u.cast(v, elementOf(op.getMoment2()))};
  }
};

struct RMSProp : Decomposable::ExternalModel<RMSProp, RMSPropOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<RMSPropOp>(operation);
    Update u(op, builder);
    double alpha = number(op.getAlpha()), momentum = number(op.getMomentum());
    u.decayGradient(number(op.getWeightDecay()));
    SmallVector<Value> slots = llvm::map_to_vector(op.getSlots(), [&](Value slot) { return u.cast(slot, u.type); });
    Value square = slots[0] = u.blend(alpha, slots[0], 1 - alpha, u.mul(u.g, u.g));
    if (op.getCentered()) {
      slots[1] = u.blend(alpha, slots[1], 1 - alpha, u.g);
      square = u.sub(square, u.mul(slots[1], slots[1]));
    }
    Value step = u.div(u.g, u.add(u.sqrt(square), number(op.getEpsilon())));
    if (momentum != 0)
      step = slots.back() = u.add(u.mul(slots.back(), momentum), step);
    SmallVector<Value> results{u.sub(u.p, u.mul(u.spread(u.lr), step))};
    for (auto [slot, old] : llvm::zip_equal(slots, op.getSlots()))
      results.push_back(u.cast(slot, elementOf(old)));
    return results;
  }
};

struct Lion : Decomposable::ExternalModel<Lion, LionOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<LionOp>(operation);
    Update u(op, builder);
    double beta1 = number(op.getBeta1()), beta2 = number(op.getBeta2());
    Value m = u.cast(op.getMoment(), u.type);
    Value step = u.make<SignOp>(u.blend(beta1, m, 1 - beta1, u.g));
    if (double decay = number(op.getWeightDecay()))
      step = u.add(step, u.mul(u.p, decay));
    Value next = u.blend(beta2, m, 1 - beta2, u.g);
    return SmallVector<Value>{u.sub(u.p, u.mul(u.spread(u.lr), step)), u.cast(next, elementOf(op.getMoment()))};
  }
};

struct LAMB : Decomposable::ExternalModel<LAMB, LAMBOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<LAMBOp>(operation);
    Update u(op, builder);
    double beta1 = number(op.getBeta1()), beta2 = number(op.getBeta2());
    Value m = u.blend(beta1, u.cast(op.getMoment1(), u.type), 1 - beta1, u.g);
    Value v = u.blend(beta2, u.cast(op.getMoment2(), u.type), 1 - beta2, u.mul(u.g, u.g));
    Value t = u.cast(op.getStep(), builder.getF64Type());
    Value scale = u.add(u.sqrt(u.div(v, u.spread(u.correction(t, beta2)))), number(op.getEpsilon()));
    Value step = u.div(u.div(m, u.spread(u.correction(t, beta1))), scale);
    if (double decay = number(op.getWeightDecay()))
      step = u.add(step, u.mul(u.p, decay));
    Value wide = u.norm(u.p), length = u.norm(step);
    Value both = u.make<AndOp>(u.positive(wide), u.positive(length));
    Value ratio = u.select(both, u.div(wide, length), u.splatLike(wide, 1.0));
    Value rate = u.mul(u.lr, u.cast(ratio, builder.getF64Type()));
    return SmallVector<Value>{u.sub(u.p, u.mul(u.spread(rate), step)), u.cast(m, elementOf(op.getMoment1())),
                              u.cast(v, elementOf(op.getMoment2()))};
  }
};

struct LARS : Decomposable::ExternalModel<LARS, LARSOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<LARSOp>(operation);
    Update u(op, builder);
    double decay = number(op.getWeightDecay());
    Value weight = u.norm(u.p), length = u.norm(u.g);
    Value both = u.make<AndOp>(u.positive(weight), u.positive(length));
    Value below = u.add(u.add(length, u.mul(weight, decay)), number(op.getEpsilon()));
    Value ratio = u.select(both, u.div(u.mul(weight, number(op.getTrust())), below), u.splatLike(weight, 1.0));
    u.decayGradient(decay);
    Value rate = u.mul(u.lr, u.cast(ratio, builder.getF64Type()));
    Value next = u.add(u.mul(u.cast(op.getSlot(), u.type), number(op.getMomentum())), u.mul(u.spread(rate), u.g));
    return SmallVector<Value>{u.sub(u.p, next), u.cast(next, elementOf(op.getSlot()))};
  }
};

struct Adafactor : Decomposable::ExternalModel<Adafactor, AdafactorOp> {
  Values decompose(Operation *operation, OpBuilder &builder) const {
    auto op = cast<AdafactorOp>(operation);
    Update u(op, builder);
    Type f64 = builder.getF64Type();
    Value t = u.cast(op.getStep(), f64);
    Value keep = u.make<PowOp>(t, u.splatLike(t, number(op.getDecay())));
    Value size = u.sqrt(u.mean(u.mul(u.p, u.p), allAxes(u.p)));
    Value width = u.cast(u.make<MaxOp>(size, u.splatLike(size, number(op.getEpsilon2()))), f64);
    width = u.mul(width, u.make<MinOp>(u.lr, u.make<RsqrtOp>(t)));
    Value p = u.p;
    if (double decay = number(op.getWeightDecay()))
      p = u.sub(p, u.mul(u.spread(u.mul(u.lr, decay)), p));
    SmallVector<Value> slots;
    Value moment = secondMoment(u, op, keep, slots);
    double epsilon1 = number(op.getEpsilon1());
    Value step = u.mul(u.make<RsqrtOp>(u.make<MaxOp>(moment, u.splatLike(moment, epsilon1 * epsilon1))), u.g);
    Value length = u.mul(u.sqrt(u.mean(u.mul(step, step), allAxes(step))), 1 / number(op.getClip()));
    Value divisor = u.cast(u.make<MaxOp>(length, u.splatLike(length, 1.0)), f64);
    SmallVector<Value> results{u.sub(p, u.mul(u.spread(u.div(width, divisor)), step))};
    for (auto [slot, old] : llvm::zip_equal(slots, op.getSlots()))
      results.push_back(u.cast(slot, elementOf(old)));
    return results;
  }

private:
  /// The estimate of g^2 in the parameter's shape; `slots` gets the moments that it is made of.
  static Value secondMoment(Update &u, AdafactorOp op, Value keep, SmallVectorImpl<Value> &slots) {
    int64_t rank = rankOf(u.p);
    Value square = u.mul(u.g, u.g);
    auto move = [&](Value old, Value fresh) {
      old = u.cast(old, u.type);
      Value rate = u.broadcast(u.cast(keep, u.type), shapeOf(old), {});
      slots.push_back(u.add(old, u.mul(rate, u.sub(fresh, old))));
      return slots.back();
    };
    auto meanOver = [&](int64_t axis, Value like) { return u.reshape(u.mean(square, {axis}), shapeOf(like)); };
    if (rank < 2)
      return move(op.getSlots()[0], square);
    Value rows = move(op.getSlots()[0], meanOver(rank - 1, op.getSlots()[0]));
    Value columns = move(op.getSlots()[1], meanOver(rank - 2, op.getSlots()[1]));
    Value whole = u.mean(rows, {rank - 2});
    whole = u.make<MaxOp>(whole, u.splatLike(whole, number(op.getEpsilon1())));
    Value share = u.div(rows, u.broadcastAlong(whole, shapeOf(rows), {rank - 2}));
    ArrayRef<int64_t> shape = shapeOf(u.p);
    return u.mul(u.broadcastTo(share, shape), u.broadcastTo(columns, shape));
  }
};

/// The state of squares, null where an optimizer has none.
template <typename Op> Value squaresOf(Op op) {
  if constexpr (llvm::is_one_of<Op, AdamOp, AdamHatOp, LAMBOp>::value)
    return op.getMoment2();
  else if constexpr (std::is_same_v<Op, AdagradOp>)
    return op.getAccumulator();
  else if constexpr (std::is_same_v<Op, RMSPropOp>)
    return op.getSlots()[0];
  return {};
}

/// The operands that all optimizers have.
template <typename Op, bool elementwise> struct Rated : OptimizerUpdate::ExternalModel<Rated<Op, elementwise>, Op> {
  OpOperand &getRateMutable(Operation *op) const { return cast<Op>(op).getLrMutable(); }
  bool isElementwise(Operation *) const { return elementwise; }
  bool holdsSquares(Operation *op, Value slot) const {
    // Adafactor's are all of squares; how many there are depends on the parameter.
    return std::is_same_v<Op, AdafactorOp> || slot == squaresOf(cast<Op>(op));
  }
};
template <bool elementwise, typename... Ops> void attachRates(MLIRContext *context) {
  (Ops::template attachInterface<Rated<Ops, elementwise>>(*context), ...);
}

} // namespace

void mpt::attachUpdateModels(MLIRContext *context) {
  MomentumOp::attachInterface<Momentum>(*context);
  AdamHatOp::attachInterface<AdamHat>(*context);
  RMSPropOp::attachInterface<RMSProp>(*context);
  LionOp::attachInterface<Lion>(*context);
  LAMBOp::attachInterface<LAMB>(*context);
  LARSOp::attachInterface<LARS>(*context);
  AdafactorOp::attachInterface<Adafactor>(*context);
  attachRates<true, SGDOp, AdamOp, AdagradOp, MomentumOp, AdamHatOp, RMSPropOp, LionOp>(context);
  // Norms and means over a parameter.
  attachRates<false, LAMBOp, LARSOp, AdafactorOp>(context);
}
