// SPDX-License-Identifier: Apache-2.0
// Scale arithmetic (floors, scales of layers, scales of 8-bit tensors) means its decomposition.
#include "Rules.h"

#include "mpt/Dialect/Train/ScaleOps.h"

using namespace mlir;
using namespace mpt;

void mpt::attachScaleRules(MLIRContext *context) {
  attachDecompositions<train::FloorScaleOp, train::RescaleOp, train::MomentsOp, train::LogMomentsOp,
                       train::MergeScaleOp, train::RollOp>(context);
  attachRoundedDecompositions<train::LayerScaleOp, train::CastScaleOp, train::TensorScaleOp>(context);
}
