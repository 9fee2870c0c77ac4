// SPDX-License-Identifier: Apache-2.0
// The kind of arithmetic of core ops and of ONNX nodes.
#include "mpt/Precision/Models.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Dialect/ONNX/OperatorClasses.h"
#include "mpt/Interfaces/MeaningFlow.h"

using namespace mlir;
using namespace mpt;

namespace {
template <Arithmetic arithmetic> struct Does {
  template <typename Op> struct Model : MeaningFlow::ExternalModel<Model<Op>, Op> {
    Arithmetic getArithmetic(Operation *) const { return arithmetic; }
  };
};

struct Reduction : MeaningFlow::ExternalModel<Reduction, ReduceOp> {
  Arithmetic getArithmetic(Operation *op) const {
    switch (cast<ReduceOp>(op).getKind()) {
    case ReduceKind::sum:
      return Arithmetic::Sums;
    case ReduceKind::mean:
      return Arithmetic::Averages;
    case ReduceKind::max:
    case ReduceKind::min:
      return Arithmetic::Chooses;
    default:
      return Arithmetic::Expands;
    }
  }
};

/// As the entry of the operator's import rule states.
struct Node : MeaningFlow::ExternalModel<Node, onnx::NodeOp> {
  Arithmetic getArithmetic(Operation *op) const {
    auto *classes = op->getDialect()->getRegisteredInterface<onnx::OperatorClasses>();
    return classes ? classes->arithmeticOf(cast<onnx::NodeOp>(op)) : Arithmetic::Unknown;
  }
};

template <Arithmetic arithmetic, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<typename Does<arithmetic>::template Model<Ops>>(*context), ...);
}
} // namespace

void mpt::registerMeanings(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attach<Arithmetic::Moves, ReshapeOp, TransposeOp, BroadcastOp, SliceOp, PadOp, ReverseOp, GatherOp,
           GatherElementsOp, GatherNDOp, MaxPoolOp, ResizeOp, DropoutOp>(context);
    attach<Arithmetic::Chooses, ConcatOp, SelectOp, MaxOp, MinOp>(context);
    attach<Arithmetic::Converts, CastOp>(context);
    attach<Arithmetic::Adds, AddOp>(context);
    attach<Arithmetic::Subtracts, SubOp>(context);
    attach<Arithmetic::Multiplies, MulOp>(context);
    attach<Arithmetic::Divides, DivOp>(context);
    attach<Arithmetic::Remains, ModOp>(context);
    attach<Arithmetic::Negates, NegOp, AbsOp>(context);
    attach<Arithmetic::Rounds, FloorOp, CeilOp, RoundOp>(context);
    attach<Arithmetic::Clamps, ClampOp, ReluOp>(context);
    attach<Arithmetic::Grows, GeluOp, SwishOp, EluOp, LeakyReluOp, SoftplusOp>(context);
    attach<Arithmetic::Averages, AvgPoolOp>(context);
    attach<Arithmetic::Accumulates, CumSumOp>(context);
    attach<Arithmetic::Contracts, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp>(context);
    attach<Arithmetic::Expands, ExpOp, PowOp>(context);
    attach<Arithmetic::Roots, SqrtOp>(context);
    attach<Arithmetic::Diverges, LogOp>(context);
    attach<Arithmetic::Inverts, RsqrtOp, ReciprocalOp>(context);
    attach<Arithmetic::Bounds, BatchNormOp, LayerNormOp, RMSNormOp, GroupNormOp, SoftmaxOp, LogSoftmaxOp>(context);
    attach<Arithmetic::Saturates, TanhOp, SigmoidOp, ErfOp, HardSigmoidOp, SignOp>(context);
    attach<Arithmetic::Waves, SinOp, CosOp>(context);
    attach<Arithmetic::Tests, CompareOp, IsNaNOp, IsInfOp, IsFiniteOp, AndOp, OrOp, XorOp, NotOp>(context);
    attach<Arithmetic::Finds, ArgReduceOp, BucketizeOp>(context);
    attach<Arithmetic::Counts, IotaOp>(context);
    ReduceOp::attachInterface<Reduction>(*context);
    // Gradients, updates and losses have the magnitude that a loss scale gives them; of the others nothing is known.
    attach<Arithmetic::Unknown, AvgPoolBackwardOp, BatchNormBackwardOp, GeluBackwardOp, GroupNormBackwardOp,
           LayerNormBackwardOp, LogSoftmaxBackwardOp, MaxPoolBackwardOp, RecurrenceBackwardOp, ReluBackwardOp,
           ResizeBackwardOp, RMSNormBackwardOp, SigmoidBackwardOp, SoftmaxBackwardOp, SoftmaxCrossEntropyBackwardOp,
           TanhBackwardOp, AlignmentsBackwardOp>(context);
    attach<Arithmetic::Unknown, AdafactorOp, AdagradOp, AdamOp, DecodeBlocksOp, EncodeBlocksOp, AdamHatOp, LAMBOp,
           LARSOp, LionOp, MomentumOp, RMSPropOp, SGDOp, SoftmaxCrossEntropyOp, AlignmentsOp>(context);
    attach<Arithmetic::Unknown, ConstantOp, RandomUniformOp, RecurrenceOp, ScatterAddOp, ScatterElementsOp, ScatterNDOp,
           CotangentOp, CustomGradientOp, FusionOp>(context);
  });
  registry.addExtension(
      +[](MLIRContext *context, onnx::ONNXDialect *) { onnx::NodeOp::attachInterface<Node>(*context); });
}
