// SPDX-License-Identifier: Apache-2.0
// The interface of ops that take values out of the graph; apart from the others because only the solver asks for it.
#ifndef MPT_INTERFACES_PRECISIONBOUNDARY_H
#define MPT_INTERFACES_PRECISIONBOUNDARY_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/PrecisionBoundary.h.inc"

#endif // MPT_INTERFACES_PRECISIONBOUNDARY_H
