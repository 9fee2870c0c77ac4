// SPDX-License-Identifier: Apache-2.0
// Registration of the onnx dialect.
#include "mpt/Dialect/ONNX/ONNXDialect.h"

using namespace mlir;
using namespace mpt::onnx;

#include "mpt/Dialect/ONNX/ONNXDialect.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/ONNX/ONNXOps.cpp.inc"

void ONNXDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/ONNX/ONNXOps.cpp.inc"
      >();
}
