// SPDX-License-Identifier: Apache-2.0
// Replicas of a training step: dialect class, for its attributes.
#ifndef MPT_DIALECT_DIST_DISTDIALECT_H
#define MPT_DIALECT_DIST_DISTDIALECT_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/Operation.h"

#include "mpt/Dialect/Dist/DistDialect.h.inc"

#endif // MPT_DIALECT_DIST_DISTDIALECT_H
