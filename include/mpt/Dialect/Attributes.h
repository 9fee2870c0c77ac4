// SPDX-License-Identifier: Apache-2.0
// Typed access to the discardable attributes that a dialect declares (`discardableAttrs` in its ODS).
#ifndef MPT_DIALECT_ATTRIBUTES_H
#define MPT_DIALECT_ATTRIBUTES_H

#include "mlir/Interfaces/FunctionInterfaces.h"

namespace mpt {

/// The attribute class of `Helper`, a dialect's `<Name>AttrHelper`, as in
/// `getAttr<MPTDialect::GridAttrHelper>(kernel)`.
template <typename Helper>
using AttrClass = decltype(std::declval<Helper &>().getAttr(std::declval<mlir::Operation *>()));

template <typename Helper> AttrClass<Helper> getAttr(mlir::Operation *op) {
  return op->getAttrOfType<AttrClass<Helper>>(Helper::getNameStr());
}
template <typename Helper> bool hasAttr(mlir::Operation *op) { return op->hasAttr(Helper::getNameStr()); }
template <typename Helper> void removeAttr(mlir::Operation *op) { op->removeAttr(Helper::getNameStr()); }
template <typename Helper> void setAttr(mlir::Operation *op, AttrClass<Helper> value) {
  op->setAttr(Helper::getNameStr(), value);
}
/// The same for a unit attribute.
template <typename Helper> void setAttr(mlir::Operation *op) {
  setAttr<Helper>(op, mlir::UnitAttr::get(op->getContext()));
}

template <typename Helper> AttrClass<Helper> getArgAttr(mlir::FunctionOpInterface function, unsigned index) {
  return function.getArgAttrOfType<AttrClass<Helper>>(index, Helper::getNameStr());
}
template <typename Helper> AttrClass<Helper> getResultAttr(mlir::FunctionOpInterface function, unsigned index) {
  return function.getResultAttrOfType<AttrClass<Helper>>(index, Helper::getNameStr());
}
template <typename Helper>
void setArgAttr(mlir::FunctionOpInterface function, unsigned index, AttrClass<Helper> value) {
  function.setArgAttr(index, Helper::getNameStr(), value);
}
template <typename Helper>
void setResultAttr(mlir::FunctionOpInterface function, unsigned index, AttrClass<Helper> value) {
  function.setResultAttr(index, Helper::getNameStr(), value);
}

/// An entry for the dictionary of an argument or a result.
template <typename Helper> mlir::NamedAttribute namedAttr(AttrClass<Helper> value) {
  return {mlir::StringAttr::get(value.getContext(), Helper::getNameStr()), value};
}

/// Whether the attribute is the one of `Helper`, with a value of its class.
template <typename Helper> bool isOne(mlir::NamedAttribute attribute) {
  return attribute.getName() == Helper::getNameStr() && llvm::isa<AttrClass<Helper>>(attribute.getValue());
}
/// The discardable attributes of a dialect that may stand at a kind of place.
template <typename... Helpers> struct AttributeSet {
  static llvm::LogicalResult verify(mlir::Operation *op, mlir::NamedAttribute attribute, llvm::StringRef place) {
    if ((isOne<Helpers>(attribute) || ...))
      return llvm::success();
    llvm::StringRef name = attribute.getName();
    if (((name == Helpers::getNameStr()) || ...))
      return op->emitOpError() << "expected another kind of attribute as '" << name << "', got "
                               << attribute.getValue();
    return op->emitOpError() << "expected a discardable attribute that the " << name.split('.').first
                             << " dialect declares for " << place << ", got '" << name << "'";
  }
};

} // namespace mpt

#endif // MPT_DIALECT_ATTRIBUTES_H
