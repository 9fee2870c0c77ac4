// SPDX-License-Identifier: Apache-2.0
// The interface of contractions; apart from the other interfaces because only loss scaling uses it.
#ifndef MPT_INTERFACES_CONTRACTION_H
#define MPT_INTERFACES_CONTRACTION_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/Contraction.h.inc"

#endif // MPT_INTERFACES_CONTRACTION_H
