// SPDX-License-Identifier: Apache-2.0
// Registration of the library dialect, its attributes and enums.
#include "mpt/Dialect/Library/LibraryDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

#include "mpt/Dialect/Library/LibraryDialect.cpp.inc"
#include "mpt/Dialect/Library/LibraryEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/Library/LibraryAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/Library/LibraryOps.cpp.inc"

void LibraryDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/Library/LibraryAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/Library/LibraryOps.cpp.inc"
      >();
}
