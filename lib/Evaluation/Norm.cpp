// SPDX-License-Identifier: Apache-2.0
// Norm family: statistics and internals in FP32 or wider, as the decompositions state them.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

void mpt::attachNormRules(MLIRContext *context) {
  attachDecompositions<BatchNormOp, BatchNormBackwardOp, LayerNormOp, LayerNormBackwardOp, RMSNormOp, RMSNormBackwardOp,
                       GroupNormOp, GroupNormBackwardOp, SoftmaxOp, SoftmaxBackwardOp, LogSoftmaxOp,
                       LogSoftmaxBackwardOp>(context);
}
