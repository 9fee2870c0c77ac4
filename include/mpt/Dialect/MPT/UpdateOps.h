// SPDX-License-Identifier: Apache-2.0
// Further optimizers of the core dialect.
#ifndef MPT_DIALECT_MPT_UPDATEOPS_H
#define MPT_DIALECT_MPT_UPDATEOPS_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/UpdateOps.h.inc"

#endif // MPT_DIALECT_MPT_UPDATEOPS_H
