// SPDX-License-Identifier: Apache-2.0
// Which operands an op's results are multiples of.
#include "mpt/Interfaces/Linearity.h"

#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr auto Fixed = OperandScale::Fixed, Shared = OperandScale::Shared, Factor = OperandScale::Factor;

template <typename Op> struct Model : Linearity::ExternalModel<Model<Op>, Op> {
  OperandScale getOperandScale(Operation *op, unsigned index) const { return scaleOf(cast<Op>(op), index); }
  static OperandScale scaleOf(Op op, unsigned index);
};

/// All operands: their sum, a choice among them, the same values elsewhere.
template <typename Op> struct All : Linearity::ExternalModel<All<Op>, Op> {
  OperandScale getOperandScale(Operation *, unsigned) const { return Shared; }
};

/// Each operand alone.
template <typename Op> struct Product : Linearity::ExternalModel<Product<Op>, Op> {
  OperandScale getOperandScale(Operation *, unsigned) const { return Factor; }
};

/// The one operand `at`.
template <unsigned at, typename Op> struct One : Linearity::ExternalModel<One<at, Op>, Op> {
  OperandScale getOperandScale(Operation *, unsigned index) const { return index == at ? Shared : Fixed; }
};

template <> OperandScale Model<SelectOp>::scaleOf(SelectOp, unsigned index) { return index == 0 ? Fixed : Shared; }

template <> OperandScale Model<ReduceOp>::scaleOf(ReduceOp op, unsigned) {
  return op.getKind() == ReduceKind::prod ? Fixed : Shared;
}

template <> OperandScale Model<PadOp>::scaleOf(PadOp op, unsigned) { return op.getValue().isZero() ? Shared : Fixed; }

template <> OperandScale Model<CastOp>::scaleOf(CastOp op, unsigned) {
  bool real = isa<FloatType>(tensorType(op.getX()).getElementType());
  return real && isa<FloatType>(tensorType(op.getY()).getElementType()) ? Shared : Fixed;
}

/// Gradients of the states and of the cell states.
template <> OperandScale Model<RecurrenceBackwardOp>::scaleOf(RecurrenceBackwardOp, unsigned index) {
  return index == 0 || index == 7 ? Shared : Fixed;
}

template <typename Op> OperandScale ofScatter(Op op, unsigned index) {
  return index == 1 || op.getKind() == ScatterKind::mul ? Fixed : Shared;
}
template <> OperandScale Model<ScatterElementsOp>::scaleOf(ScatterElementsOp op, unsigned index) {
  return ofScatter(op, index);
}
template <> OperandScale Model<ScatterNDOp>::scaleOf(ScatterNDOp op, unsigned index) { return ofScatter(op, index); }

template <template <typename> typename Rule, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Rule<Ops>>(*context), ...);
}
template <unsigned at, typename... Ops> void attachOne(MLIRContext *context) {
  (Ops::template attachInterface<One<at, Ops>>(*context), ...);
}

} // namespace

void mpt::attachLinearity(MLIRContext *context) {
  attach<All, AddOp, SubOp, NegOp, AbsOp, MaxOp, MinOp, ReluOp, LeakyReluOp, ConcatOp, ReshapeOp, TransposeOp,
         BroadcastOp, SliceOp, ReverseOp, CumSumOp, MaxPoolOp, AvgPoolOp, AvgPoolBackwardOp, ResizeOp,
         ResizeBackwardOp>(context);
  attach<Product, MulOp, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
  attach<Model, SelectOp, ReduceOp, PadOp, CastOp, ScatterElementsOp, ScatterNDOp, RecurrenceBackwardOp>(context);
  attachOne<0, DivOp, GatherOp, GatherElementsOp, GatherNDOp, DropoutOp, MaxPoolBackwardOp, ReluBackwardOp,
            TanhBackwardOp, SigmoidBackwardOp, GeluBackwardOp, SoftmaxBackwardOp, LogSoftmaxBackwardOp,
            BatchNormBackwardOp, LayerNormBackwardOp, RMSNormBackwardOp, GroupNormBackwardOp,
            SoftmaxCrossEntropyBackwardOp, AlignmentsBackwardOp>(context);
  attachOne<1, ScatterAddOp>(context);
}
