// SPDX-License-Identifier: Apache-2.0
// How loss scales go through constants, movement, gathering, scattering, reductions and windows.
#include "Rules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::scales;

namespace {

/// Zeros fit any scale, but where differentiation starts; positive numbers bound scales.
struct Literal : GradientScale::ExternalModel<Literal, ConstantOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto value = dyn_cast<DenseFPElementsAttr>(cast<ConstantOp>(op).getValue());
    if (!value || !value.isSplat() || hasAttr<MPTDialect::SeedAttrHelper>(op))
      return;
    APFloat number = value.getSplatValue<APFloat>();
    if (number.isZero())
      inference.set(op->getResult(0), ScaleType::zero());
    else if (number.isFinite() && !number.isNegative() && value.getNumElements() == 1) // as bounds of scales are
      inference.set(op->getResult(0), ScaleType::bound());
  }
  Flag evaluateFlag(Operation *op, ArrayRef<Flag>) const {
    auto value = dyn_cast<DenseIntElementsAttr>(cast<ConstantOp>(op).getValue());
    if (!value || !value.isSplat() || !value.getElementType().isInteger(1))
      return std::nullopt;
    return value.getSplatValue<bool>();
  }
};

/// Keeps elements apart: of different scales it makes a tensor that has none in common.
struct Concatenation : GradientScale::ExternalModel<Concatenation, ConcatOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    std::optional<ScaleType> common;
    if (llvm::all_of(op->getOperands(), [&](Value operand) { return inference.of(operand).isScale(); }))
      return setResults(op, inference, ScaleType::scales());
    for (Value operand : op->getOperands()) {
      ScaleType type = inference.of(operand);
      if (!common || common->isZero())
        common = type;
      else if (!type.isZero() && !common->carriesAs(type))
        common = ScaleType::mixed();
    }
    setResults(op, inference, common.value_or(ScaleType::unscaled()).withoutPurity());
  }
};

struct Padding : GradientScale::ExternalModel<Padding, PadOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    if (!cast<PadOp>(op).getValue().isZero())
      return needUnscaled(op, inference);
    setResults(op, inference, inference.of(op->getOperand(0)).withoutPurity());
  }
};

/// Of the degree of the factors that a product over elements has.
struct Reduction : GradientScale::ExternalModel<Reduction, ReduceOp> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    auto reduce = cast<ReduceOp>(op);
    if (reduce.getKind() != ReduceKind::prod)
      return setResults(op, inference, inference.of(reduce.getX()).withoutPurity());
    int64_t factors = 1;
    for (int64_t axis : reduce.getAxes())
      factors *= tensorType(reduce.getX()).getDimSize(axis);
    inferPower(op, inference, factors, 1);
  }
  bool spreadsNonFinite(Operation *op) const {
    ReduceKind kind = cast<ReduceOp>(op).getKind();
    return kind == ReduceKind::sum || kind == ReduceKind::mean;
  }
};

/// Updates that multiply the data are unscaled; others carry the scale of the data.
template <typename Op> struct Scattering : GradientScale::ExternalModel<Scattering<Op>, Op> {
  void inferScales(Operation *op, ScaleInference &inference) const {
    if (cast<Op>(op).getKind() != ScatterKind::mul)
      return setResults(op, inference, meet(inference, op->getOperands()).withoutPurity());
    needUnscaled(op, inference, 0);
    setResults(op, inference, inference.of(op->getOperand(0)).withoutPurity());
  }
};

} // namespace

void scales::attachTensorScales(MLIRContext *context) {
  ConstantOp::attachInterface<Literal>(*context);
  ConcatOp::attachInterface<Concatenation>(*context);
  PadOp::attachInterface<Padding>(*context);
  ReduceOp::attachInterface<Reduction>(*context);
  attach<Scattering, ScatterElementsOp, ScatterNDOp>(context);
  attachSpreading<Movement, ReshapeOp, TransposeOp, BroadcastOp, ReverseOp>(context);
  attachPlain<Movement, SliceOp, GatherOp, GatherElementsOp, GatherNDOp>(context);
  attachPlain<Homogeneous, ScatterAddOp, CumSumOp, MaxPoolOp, MaxPoolBackwardOp, AvgPoolOp, AvgPoolBackwardOp, ResizeOp,
              ResizeBackwardOp, DropoutOp>(context);
  attach<Invariant, ArgReduceOp>(context);
  attach<NotHomogeneous, IotaOp, RandomUniformOp, BucketizeOp>(context);
}
