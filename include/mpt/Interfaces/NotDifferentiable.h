// SPDX-License-Identifier: Apache-2.0
// The marker of ops without gradient; apart from the other interfaces because only autodiff and the coverage test use
// it.
#ifndef MPT_INTERFACES_NOTDIFFERENTIABLE_H
#define MPT_INTERFACES_NOTDIFFERENTIABLE_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/NotDifferentiable.h.inc"

#endif // MPT_INTERFACES_NOTDIFFERENTIABLE_H
