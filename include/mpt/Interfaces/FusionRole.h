// SPDX-License-Identifier: Apache-2.0
// The role of data movement in fusion; apart from the other interfaces because only fusion uses it.
#ifndef MPT_INTERFACES_FUSIONROLE_H
#define MPT_INTERFACES_FUSIONROLE_H

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/FusionRole.h.inc"

#endif // MPT_INTERFACES_FUSIONROLE_H
