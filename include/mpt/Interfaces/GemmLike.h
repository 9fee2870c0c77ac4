// SPDX-License-Identifier: Apache-2.0
// The interface of matrix multiplications and implicit ones; apart from the others because few passes ask for it.
#ifndef MPT_INTERFACES_GEMMLIKE_H
#define MPT_INTERFACES_GEMMLIKE_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/GemmLike.h.inc"

#endif // MPT_INTERFACES_GEMMLIKE_H
