// SPDX-License-Identifier: Apache-2.0
// How loss scales go through elementwise ops and casts.
#include "Rules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::scales;

namespace {

struct Quotient : GradientScale::ExternalModel<Quotient, DivOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    std::optional<ScaleType> inverse = inference.of(op->getOperand(1)).power(-1);
    setResults(op, inference, inference.of(op->getOperand(0)).times(*inverse));
  }
};

/// Of degree n where the exponent is the constant n, else of none.
struct PowerOf : GradientScale::ExternalModel<PowerOf, PowOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    DenseFPElementsAttr exponent;
    if (matchPattern(op->getOperand(1), m_Constant(&exponent)) && exponent.isSplat()) {
      double n = exponent.getSplatValue<APFloat>().convertToDouble();
      if (n == std::trunc(n) && std::abs(n) < 64)
        return inferPower(op, inference, static_cast<int64_t>(n), 1);
    }
    needUnscaled(op, inference);
  }
};

template <typename Op> struct Choice : GradientScale::ExternalModel<Choice<Op>, Op> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    inferChoice(op, inference, op->getOperands().take_back(2));
  }
};

/// Moves and rounds. Integers have no scale, so only floats become floats; a saturating cast hides infinities.
struct Conversion : GradientScale::ExternalModel<Conversion, CastOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    if (carriesScales(op->getResult(0)) || !carriesScales(op->getOperand(0)))
      return inferMovement(op, inference);
    needUnscaled(op, inference);
  }
  bool spreadsNonFinite(Operation *op) const {
    return carriesScales(op->getResult(0)) && cast<CastOp>(op).getOverflow() == Overflow::Infinity;
  }
};

/// Logic on flags; on integers it is as any arithmetic.
template <typename Op> struct Logic : GradientScale::ExternalModel<Logic<Op>, Op> {
  void inferScales(Operation *op, ScaleInference &inference) const { needUnscaled(op, inference); }
  Flag evaluateFlag(Operation *op, ArrayRef<Flag> known) const {
    if (!getElementTypeOrSelf(op->getResult(0).getType()).isInteger(1))
      return std::nullopt;
    return meaning(known);
  }

private:
  static Flag meaning(ArrayRef<Flag> known);
};
template <> Flag Logic<NotOp>::meaning(ArrayRef<Flag> known) { return known[0] ? Flag(!*known[0]) : std::nullopt; }
template <> Flag Logic<AndOp>::meaning(ArrayRef<Flag> known) {
  if (known[0] == Flag(false) || known[1] == Flag(false))
    return false;
  return known[0] && known[1] ? Flag(true) : std::nullopt;
}
template <> Flag Logic<OrOp>::meaning(ArrayRef<Flag> known) {
  if (known[0] == Flag(true) || known[1] == Flag(true))
    return true;
  return known[0] && known[1] ? Flag(false) : std::nullopt;
}

} // namespace

void scales::attachElementwiseScales(MLIRContext *context) {
  attachSpreading<Homogeneous, AddOp, SubOp, NegOp, AbsOp>(context);
  attachPlain<Homogeneous, ReluOp, LeakyReluOp>(context);
  attach<Choice, MaxOp, MinOp, SelectOp>(context);
  attachSpreading<Multilinear, MulOp>(context);
  DivOp::attachInterface<Quotient>(*context);
  PowOp::attachInterface<PowerOf>(*context);
  CastOp::attachInterface<Conversion>(*context);
  SqrtOp::attachInterface<Power<1, 2>::Model<SqrtOp>>(*context);
  RsqrtOp::attachInterface<Power<-1, 2>::Model<RsqrtOp>>(*context);
  ReciprocalOp::attachInterface<Power<-1>::Model<ReciprocalOp>>(*context);
  attach<LinearIn<0>::Model, ReluBackwardOp, TanhBackwardOp, SigmoidBackwardOp, GeluBackwardOp>(context);
  attach<Invariant, SignOp, IsNaNOp, IsInfOp, IsFiniteOp, CompareOp>(context);
  attach<Logic, NotOp, AndOp, OrOp>(context);
  attach<NotHomogeneous, FloorOp, CeilOp, RoundOp, ExpOp, LogOp, SinOp, CosOp, TanhOp, SigmoidOp, ErfOp, SoftplusOp,
         GeluOp, SwishOp, EluOp, HardSigmoidOp, ClampOp, ModOp, XorOp>(context);
}
