// SPDX-License-Identifier: Apache-2.0
// The interface of ops with a running value; apart from the others because few passes ask for it.
#ifndef MPT_INTERFACES_ACCUMULATES_H
#define MPT_INTERFACES_ACCUMULATES_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/Accumulates.h.inc"

#endif // MPT_INTERFACES_ACCUMULATES_H
