// SPDX-License-Identifier: Apache-2.0
// Loss family: labels are checked, the rest is the decomposition; CTC step by step.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Every label names a class or is the one that does not count.
template <typename Op> LogicalResult interpretLoss(Op op, InterpreterFrame &frame) {
  int64_t classes = tensorType(op.getLogits()).getDimSize(1);
  std::optional<uint64_t> ignored = op.getIgnoreIndex();
  for (int64_t label : frame.get(op.getLabels()).ints())
    if ((label < 0 || label >= classes) && !(ignored && label == static_cast<int64_t>(*ignored)))
      return op.emitOpError() << "expected labels from 0 to " << classes - 1 << ", got " << label;
  return interpretDecomposition(op, frame);
}

} // namespace

void mpt::attachLossRules(MLIRContext *context) {
  attachRule<SoftmaxCrossEntropyOp, interpretLoss<SoftmaxCrossEntropyOp>>(context);
  attachRule<SoftmaxCrossEntropyBackwardOp, interpretLoss<SoftmaxCrossEntropyBackwardOp>>(context);
  attachDecompositions<AlignmentsOp, AlignmentsBackwardOp>(context);
}
