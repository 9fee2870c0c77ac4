// SPDX-License-Identifier: Apache-2.0
// Registration of the core dialect, its attributes and enums.
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;

#include "mpt/Dialect/MPT/MPTDialect.cpp.inc"
#include "mpt/Dialect/MPT/MPTEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/MPT/MPTAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/MPTOps.cpp.inc"

void MPTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/MPT/MPTAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/MPT/MPTOps.cpp.inc"
      >();
}

Operation *MPTDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  if (!elements || elements.getShapedType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, elements);
}
