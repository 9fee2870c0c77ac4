// SPDX-License-Identifier: Apache-2.0
// Optimizer family: an update means its decomposition, in the parameter's type or wider, step by step.
#include "Rules.h"

#include "mpt/Dialect/MPT/UpdateOps.h"

using namespace mlir;
using namespace mpt;

void mpt::attachOptimizerRules(MLIRContext *context) {
  attachDecompositions<SGDOp, AdamOp, AdagradOp, MomentumOp, AdamHatOp, RMSPropOp, LionOp, LAMBOp, LARSOp, AdafactorOp>(
      context);
}
