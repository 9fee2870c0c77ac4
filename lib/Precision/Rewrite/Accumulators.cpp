// SPDX-License-Identifier: Apache-2.0
// Which ops have a running value in which many elements meet. test/unit/CoverageTest.cpp finds missing ones.
#include "mpt/Precision/Models.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/UpdateOps.h"
#include "mpt/Dialect/Train/ScaleOps.h"
#include "mpt/Interfaces/Accumulates.h"

using namespace mlir;
using namespace mpt;

namespace {

template <typename Op> struct Sums : Accumulates::ExternalModel<Sums<Op>, Op> {};

/// Sums and products of updates; other kinds combine nothing, or nothing that rounds.
template <typename Op> struct Scatters : Accumulates::ExternalModel<Scatters<Op>, Op> {
  bool accumulates(Operation *op) const {
    ScatterKind kind = cast<Op>(op).getKind();
    return kind == ScatterKind::add || kind == ScatterKind::mul;
  }
};

template <template <typename> class Model, typename... Ops> void attach(MLIRContext *context) {
  (Ops::template attachInterface<Model<Ops>>(*context), ...);
}

} // namespace

void mpt::registerAccumulators(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attach<Sums, MatMulOp, ConvOp, ConvBackwardDataOp, ConvBackwardWeightsOp, RecurrenceOp, RecurrenceBackwardOp>(
        context);
    attach<Sums, ReduceOp, CumSumOp, ScatterAddOp>(context);
    attach<Scatters, ScatterElementsOp, ScatterNDOp>(context);
    attach<Sums, AvgPoolOp, AvgPoolBackwardOp, MaxPoolBackwardOp, ResizeOp, ResizeBackwardOp>(context);
    attach<Sums, BatchNormOp, BatchNormBackwardOp, LayerNormOp, LayerNormBackwardOp, RMSNormOp, RMSNormBackwardOp,
           GroupNormOp, GroupNormBackwardOp>(context);
    attach<Sums, AdafactorOp, LAMBOp, LARSOp>(context); // norms and means of whole parameters
    attach<Sums, SoftmaxOp, SoftmaxBackwardOp, LogSoftmaxOp, LogSoftmaxBackwardOp, SoftmaxCrossEntropyOp, AlignmentsOp,
           AlignmentsBackwardOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) {
    attach<Sums, train::GlobalNormOp, train::MomentsOp, train::LogMomentsOp>(context);
  });
  registry.addExtension(+[](MLIRContext *context, library::LibraryDialect *) {
    attach<Sums, library::GemmOp, library::ConvOp, library::AttentionOp, library::AttentionGradientOp>(context);
  });
}
