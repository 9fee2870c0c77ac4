// SPDX-License-Identifier: Apache-2.0
// Registration of the onnx dialect.
#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt::onnx;

#include "mpt/Dialect/ONNX/ONNXEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/ONNX/ONNXAttributes.cpp.inc"

#include "mpt/Dialect/ONNX/ONNXDialect.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/ONNX/ONNXOps.cpp.inc"

void ONNXDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/ONNX/ONNXAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/ONNX/ONNXOps.cpp.inc"
      >();
}
