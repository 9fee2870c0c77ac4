// SPDX-License-Identifier: Apache-2.0
// Scale ops of the training dialect.
#ifndef MPT_DIALECT_TRAIN_SCALEOPS_H
#define MPT_DIALECT_TRAIN_SCALEOPS_H

#include "mpt/Dialect/Train/TrainDialect.h"

#define GET_OP_CLASSES
#include "mpt/Dialect/Train/ScaleOps.h.inc"

#endif // MPT_DIALECT_TRAIN_SCALEOPS_H
