// SPDX-License-Identifier: Apache-2.0
// The interface of the analysis of meanings; apart from the others because only the precision solver asks for it.
#ifndef MPT_INTERFACES_MEANINGFLOW_H
#define MPT_INTERFACES_MEANINGFLOW_H

#include "mpt/Interfaces/Arithmetic.h"

#include "mlir/IR/OpDefinition.h"

#include "mpt/Interfaces/MeaningFlow.h.inc"

#endif // MPT_INTERFACES_MEANINGFLOW_H
