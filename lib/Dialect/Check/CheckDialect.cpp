// SPDX-License-Identifier: Apache-2.0
// Registration of the check dialect.
#include "mpt/Dialect/Check/CheckDialect.h"

using namespace mlir;
using namespace mpt::check;

#include "mpt/Dialect/Check/CheckDialect.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Check/CheckOps.cpp.inc"

void CheckDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/Check/CheckOps.cpp.inc"
      >();
}
