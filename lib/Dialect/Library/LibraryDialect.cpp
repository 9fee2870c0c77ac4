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

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<int64_t> order) {
  SmallVector<int64_t> sorted(order);
  llvm::sort(sorted);
  if (!llvm::equal(sorted, llvm::seq<int64_t>(order.size())))
    return emitError() << "C1: expected every dimension of the tensor once, got [" << order << "]";
  return success();
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  SmallVector<int64_t> order;
  auto parseDimension = [&] { return parser.parseInteger(order.emplace_back()); };
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseDimension) ||
      parser.parseGreater())
    return {};
  return parser.getChecked<LayoutAttr>(parser.getContext(), order);
}

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getOrder(), printer);
  printer << "]>";
}

/// One layout a result, of the result's rank.
static LogicalResult verifyLayouts(Operation *op, ArrayAttr layouts) {
  if (!layouts || layouts.size() != op->getNumResults())
    return op->emitOpError() << "expected one #library.layout for each of " << op->getNumResults() << " results, got "
                             << (layouts ? layouts.size() : 0);
  for (auto [layout, type] : llvm::zip_equal(layouts, op->getResultTypes())) {
    auto order = dyn_cast<LayoutAttr>(layout);
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (!order || !tensor || static_cast<int64_t>(order.getOrder().size()) != tensor.getRank())
      return op->emitOpError() << "expected a #library.layout of the rank of " << type << ", got " << layout;
  }
  return success();
}

LogicalResult LibraryDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  if (attribute.getName() == LayoutsAttrHelper::getNameStr())
    return verifyLayouts(op, dyn_cast<ArrayAttr>(attribute.getValue()));
  if (attribute.getName() == PlacedAttrHelper::getNameStr()) {
    auto placed = dyn_cast<DenseI64ArrayAttr>(attribute.getValue());
    auto isOperand = [&](int64_t number) { return number >= 0 && number < static_cast<int64_t>(op->getNumOperands()); };
    if (!placed || !llvm::all_of(placed.asArrayRef(), isOperand))
      return op->emitOpError() << "expected numbers of operands, got " << attribute.getValue();
  }
  if (attribute.getName() == LentAttrHelper::getNameStr()) {
    auto states = dyn_cast<ArrayAttr>(attribute.getValue());
    if (!states || states.size() != op->getNumResults() ||
        !llvm::all_of(states, llvm::IsaPred<FlatSymbolRefAttr, UnitAttr>))
      return op->emitOpError() << "expected a state or unit for each of " << op->getNumResults() << " results, got "
                               << attribute.getValue();
  }
  if (attribute.getName() == PackedAttrHelper::getNameStr()) {
    auto type = dyn_cast<TypeAttr>(attribute.getValue());
    if (!type || !(type.getValue().isF16() || type.getValue().isBF16()))
      return op->emitOpError() << "expected f16 or bf16 as the type that readers round to, got "
                               << attribute.getValue();
  }
  if (attribute.getName() == ApartAttrHelper::getNameStr()) {
    auto pairs = dyn_cast<ArrayAttr>(attribute.getValue());
    if (!pairs || pairs.size() % 2 != 0 || !llvm::all_of(pairs, llvm::IsaPred<StringAttr>))
      return op->emitOpError() << "expected pairs of a node and a reason, got " << attribute.getValue();
  }
  return success();
}
