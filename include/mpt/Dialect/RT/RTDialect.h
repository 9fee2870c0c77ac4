// SPDX-License-Identifier: Apache-2.0
// The runtime dialect: calls on planned buffers.
#ifndef MPT_DIALECT_RT_RTDIALECT_H
#define MPT_DIALECT_RT_RTDIALECT_H

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Interfaces/RuntimeCall.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "mpt/Dialect/RT/RTDialect.h.inc"
#include "mpt/Dialect/RT/RTEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/RT/RTAttributes.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/RT/RTOps.h.inc"

#endif // MPT_DIALECT_RT_RTDIALECT_H
