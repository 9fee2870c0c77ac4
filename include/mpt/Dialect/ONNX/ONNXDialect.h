// SPDX-License-Identifier: Apache-2.0
// The ONNX dialect: generic nodes.
#ifndef MPT_DIALECT_ONNX_ONNXDIALECT_H
#define MPT_DIALECT_ONNX_ONNXDIALECT_H

#include "mpt/Dialect/Attributes.h"
#include "mpt/Interfaces/Interfaces.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "mpt/Dialect/ONNX/ONNXEnums.h.inc"

// Before the dialect, some of whose discardable attributes are among them.
#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/ONNX/ONNXAttributes.h.inc"

#include "mpt/Dialect/ONNX/ONNXDialect.h.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/ONNX/ONNXOps.h.inc"

#endif // MPT_DIALECT_ONNX_ONNXDIALECT_H
