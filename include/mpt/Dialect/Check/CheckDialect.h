// SPDX-License-Identifier: Apache-2.0
// The check dialect: assertions for tests.
#ifndef MPT_DIALECT_CHECK_CHECKDIALECT_H
#define MPT_DIALECT_CHECK_CHECKDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "mpt/Dialect/Check/CheckDialect.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Check/CheckOps.h.inc"

#endif // MPT_DIALECT_CHECK_CHECKDIALECT_H
