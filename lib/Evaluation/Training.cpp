// SPDX-License-Identifier: Apache-2.0
// Training family: values with gradients of their own are evaluated by their decomposition.
#include "Rules.h"

#include "mpt/Dialect/MPT/TrainingOps.h"

using namespace mlir;
using namespace mpt;

void mpt::attachTrainingRules(MLIRContext *context) { attachDecompositions<CotangentOp, CustomGradientOp>(context); }
