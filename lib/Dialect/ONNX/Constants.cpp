// SPDX-License-Identifier: Apache-2.0
// Initializers and constant nodes as one thing.
#include "mpt/Dialect/ONNX/Constants.h"

#include "mpt/Dialect/ONNX/NodeTypes.h"

using namespace mlir;
using namespace mpt::onnx;

bool mpt::onnx::isConstant(Operation *op, Type narrow) {
  auto node = dyn_cast_or_null<NodeOp>(op);
  return isa_and_nonnull<InitializerOp>(op) || (node && isConstantNode(node, narrow));
}

Attribute mpt::onnx::contentsOf(Operation *constant) {
  if (auto initializer = dyn_cast<InitializerOp>(constant))
    return initializer.getValue();
  DictionaryAttr attributes = cast<NodeOp>(constant).getAttrs();
  Type f32 = Float32Type::get(constant->getContext());
  if (auto elements = attributes.getAs<ElementsAttr>("value"))
    return elements;
  if (auto number = attributes.getAs<FloatAttr>("value_float"))
    return DenseElementsAttr::get(RankedTensorType::get({}, f32), number.getValue());
  return DenseElementsAttr::get(RankedTensorType::get({1}, f32), 0.0f); // ConstantOfShape's default
}

Attribute mpt::onnx::fixedContentsOf(Operation *op) {
  if (auto initializer = dyn_cast<InitializerOp>(op))
    return initializer.getOverridable() ? Attribute() : initializer.getValue();
  auto node = dyn_cast<NodeOp>(op);
  if (!node || !node.getDomain().empty() || node.getOpType() != "Constant")
    return {};
  for (StringRef name : {"value", "value_float", "value_floats", "value_int", "value_ints"})
    if (Attribute value = node.getAttrs().get(name))
      return value;
  return {};
}

bool mpt::onnx::isConvertedWhenWritten(Operation *constant) {
  auto initializer = dyn_cast<InitializerOp>(constant);
  return initializer && !isa<DenseElementsAttr>(initializer.getValue());
}

bool mpt::onnx::isOverridable(Operation *constant) {
  auto initializer = dyn_cast<InitializerOp>(constant);
  return initializer && initializer.getOverridable();
}

StringAttr mpt::onnx::resultName(OpResult result) {
  if (auto initializer = dyn_cast<InitializerOp>(result.getOwner()))
    return initializer.getNameAttr();
  auto node = dyn_cast<NodeOp>(result.getOwner());
  unsigned index = result.getResultNumber();
  if (node && node.getOutputNames() && index < node.getOutputNames()->size())
    return cast<StringAttr>((*node.getOutputNames())[index]);
  auto location = result.getOwner()->getLoc()->findInstanceOf<NameLoc>();
  return location ? location.getName() : StringAttr::get(result.getContext());
}

Operation *mpt::onnx::copyConstant(Operation *constant, Type type, StringAttr name, ElementsAttr contents) {
  OpBuilder builder(constant);
  builder.setInsertionPointAfter(constant);
  Operation *copy = builder.clone(*constant);
  copy->getResult(0).setType(cast<TensorType>(constant->getResult(0).getType()).clone(type));
  if (auto initializer = dyn_cast<InitializerOp>(copy)) {
    initializer.setNameAttr(name);
    if (contents)
      initializer.setValueAttr(contents);
    return copy;
  }
  auto node = cast<NodeOp>(copy);
  if (contents) {
    NamedAttrList attributes(node.getAttrs());
    attributes.erase("value_float");
    attributes.set("value", contents);
    node.setAttrsAttr(attributes.getDictionary(builder.getContext()));
  }
  node.setOutputNamesAttr(builder.getArrayAttr(name));
  copy->setLoc(NameLoc::get(name));
  return copy;
}

void mpt::onnx::takeName(Operation *constant, Operation *other) {
  constant->setLoc(other->getLoc());
  if (auto initializer = dyn_cast<InitializerOp>(constant))
    initializer.setNameAttr(cast<InitializerOp>(other).getNameAttr());
  else
    cast<NodeOp>(constant).setOutputNamesAttr(cast<NodeOp>(other).getOutputNamesAttr());
}
