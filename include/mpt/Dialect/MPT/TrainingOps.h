// SPDX-License-Identifier: Apache-2.0
// Ops of the core dialect by which a model states gradients itself.
#ifndef MPT_DIALECT_MPT_TRAININGOPS_H
#define MPT_DIALECT_MPT_TRAININGOPS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/TrainingOps.h.inc"

#endif // MPT_DIALECT_MPT_TRAININGOPS_H
