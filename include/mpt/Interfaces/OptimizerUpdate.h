// SPDX-License-Identifier: Apache-2.0
// The interface of optimizers; apart from the others because few passes ask for it.
#ifndef MPT_INTERFACES_OPTIMIZERUPDATE_H
#define MPT_INTERFACES_OPTIMIZERUPDATE_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/OptimizerUpdate.h.inc"

#endif // MPT_INTERFACES_OPTIMIZERUPDATE_H
