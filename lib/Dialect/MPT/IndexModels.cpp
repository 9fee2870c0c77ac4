// SPDX-License-Identifier: Apache-2.0
// Which operands are indices, and the values that they may have.
#include "mpt/Dialect/MPT/Indices.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Positions along a dimension; negative ones count from its end.
IndexSet positionsIn(int64_t extent) { return IndexSet::range(-extent, extent - 1); }

/// The indices lead into a gather's first operand, or a scatter's result.
template <typename Op, bool gathers> struct AxisIndices : IndexOperands::ExternalModel<AxisIndices<Op, gathers>, Op> {
  Value getIndexOperand(Operation *op) const { return cast<Op>(op).getIndices(); }
  SmallVector<IndexSet> getLegalIndices(Operation *op) const {
    return {positionsIn(tensorType(gathers ? op->getOperand(0) : op->getResult(0)).getDimSize(cast<Op>(op).getAxis()))};
  }
};

template <typename Op, bool gathers> struct TupleIndices : IndexOperands::ExternalModel<TupleIndices<Op, gathers>, Op> {
  Value getIndexOperand(Operation *op) const { return cast<Op>(op).getIndices(); }
  SmallVector<IndexSet> getLegalIndices(Operation *op) const {
    Value whole = gathers ? op->getOperand(0) : op->getResult(0);
    int64_t width = tensorType(cast<Op>(op).getIndices()).getShape().back();
    SmallVector<IndexSet> sets;
    for (int64_t extent : tensorType(whole).getShape().slice(cast<Op>(op).getBatchDims(), width))
      sets.push_back(positionsIn(extent));
    return sets;
  }
};

template <typename Op> struct Labels : IndexOperands::ExternalModel<Labels<Op>, Op> {
  Value getIndexOperand(Operation *op) const { return cast<Op>(op).getLabels(); }
  SmallVector<IndexSet> getLegalIndices(Operation *operation) const {
    auto op = cast<Op>(operation);
    IndexSet legal = IndexSet::range(0, tensorType(op.getLogits()).getDimSize(1) - 1);
    if (std::optional<uint64_t> ignored = op.getIgnoreIndex())
      legal = legal.unite(IndexSet::of(static_cast<int64_t>(*ignored)));
    return {legal};
  }
};

} // namespace

void mpt::registerIndexModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    GatherOp::attachInterface<AxisIndices<GatherOp, true>>(*context);
    GatherElementsOp::attachInterface<AxisIndices<GatherElementsOp, true>>(*context);
    GatherNDOp::attachInterface<TupleIndices<GatherNDOp, true>>(*context);
    ScatterAddOp::attachInterface<AxisIndices<ScatterAddOp, false>>(*context);
    ScatterElementsOp::attachInterface<AxisIndices<ScatterElementsOp, false>>(*context);
    ScatterNDOp::attachInterface<TupleIndices<ScatterNDOp, false>>(*context);
    SoftmaxCrossEntropyOp::attachInterface<Labels<SoftmaxCrossEntropyOp>>(*context);
    SoftmaxCrossEntropyBackwardOp::attachInterface<Labels<SoftmaxCrossEntropyBackwardOp>>(*context);
  });
}
