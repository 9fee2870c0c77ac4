// SPDX-License-Identifier: Apache-2.0
// The training dialect: dialect class, roles and ops.
#ifndef MPT_DIALECT_TRAIN_TRAINDIALECT_H
#define MPT_DIALECT_TRAIN_TRAINDIALECT_H

#include "mpt/Dialect/Attributes.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "mpt/Dialect/Train/TrainEnums.h.inc"

// Before the dialect, some of whose discardable attributes are among them.
#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/Train/TrainAttributes.h.inc"

#include "mpt/Dialect/Train/TrainDialect.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Train/TrainOps.h.inc"

namespace mpt::train {
/// Whether the runtime takes an argument or a result for `role`, whatever its name.
bool argumentIs(mlir::FunctionOpInterface function, unsigned index, Role role);
bool resultIs(mlir::FunctionOpInterface function, unsigned index, Role role);
} // namespace mpt::train

#endif // MPT_DIALECT_TRAIN_TRAINDIALECT_H
