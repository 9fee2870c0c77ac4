// SPDX-License-Identifier: Apache-2.0
// The core dialect: dialect class, attributes, enums and ops.
#ifndef MPT_DIALECT_MPT_MPTDIALECT_H
#define MPT_DIALECT_MPT_MPTDIALECT_H

#include "mpt/Dialect/Attributes.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "mpt/Dialect/MPT/MPTEnums.h.inc"

// Before the dialect, one of whose discardable attributes is among them.
#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/MPT/MPTAttributes.h.inc"

#include "mpt/Dialect/MPT/MPTDialect.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/MPTOps.h.inc"

#endif // MPT_DIALECT_MPT_MPTDIALECT_H
