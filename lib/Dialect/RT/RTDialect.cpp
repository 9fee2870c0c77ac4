// SPDX-License-Identifier: Apache-2.0
// Registration of the rt dialect.
#include "mpt/Dialect/RT/RTDialect.h"

using namespace mlir;
using namespace mpt::rt;

#include "mpt/Dialect/RT/RTDialect.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/RT/RTOps.cpp.inc"

void RTDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/RT/RTOps.cpp.inc"
      >();
}
