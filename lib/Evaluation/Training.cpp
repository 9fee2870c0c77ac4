// SPDX-License-Identifier: Apache-2.0
// Training family: values with gradients of their own mean what they decompose into.
#include "Rules.h"

#include "mpt/Dialect/MPT/TrainingOps.h"

using namespace mlir;
using namespace mpt;

void mpt::attachTrainingRules(MLIRContext *context) { attachDecompositions<CotangentOp, CustomGradientOp>(context); }
