// SPDX-License-Identifier: Apache-2.0
// Recurrent family: step by step, as the decompositions state it.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

void mpt::attachRecurrentRules(MLIRContext *context) {
  attachDecompositions<RecurrenceOp, RecurrenceBackwardOp>(context);
}
