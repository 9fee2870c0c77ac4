// SPDX-License-Identifier: Apache-2.0
// Requests for gradients in the training dialect.
#ifndef MPT_DIALECT_TRAIN_REQUESTOPS_H
#define MPT_DIALECT_TRAIN_REQUESTOPS_H

#include "mpt/Dialect/Train/TrainDialect.h"

#define GET_OP_CLASSES
#include "mpt/Dialect/Train/RequestOps.h.inc"

#endif // MPT_DIALECT_TRAIN_REQUESTOPS_H
