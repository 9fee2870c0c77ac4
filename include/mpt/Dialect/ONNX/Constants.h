// SPDX-License-Identifier: Apache-2.0
// Constants of a graph that goes back into a file: initializers, and nodes whose result an attribute states.
#ifndef MPT_DIALECT_ONNX_CONSTANTS_H
#define MPT_DIALECT_ONNX_CONSTANTS_H

#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"

namespace mpt::onnx {

/// True for an initializer, and for a node that may be there in another type where its version has results of type
/// `narrow` (isConstantNode).
bool isConstant(mlir::Operation *op, mlir::Type narrow);
/// The contents of a constant: an initializer's elements, or its text; of a node one element stands for all of them.
mlir::Attribute contentsOf(mlir::Operation *constant);
/// The contents of an initializer that no caller overrides, or of a Constant node of any type; null for other ops.
mlir::Attribute fixedContentsOf(mlir::Operation *op);
/// An initializer whose elements stay as they are in memory, and become its result's type when it is written.
bool isConvertedWhenWritten(mlir::Operation *constant);
/// An initializer that a caller may override: it has the type of the graph's interface.
bool isOverridable(mlir::Operation *constant);

/// The name of a result in the file; its op's name where it has none of its own.
mlir::StringAttr resultName(mlir::OpResult result);
/// A copy of `constant` behind it, called `name`, of elements of `type`; it keeps its contents where `contents` is
/// null.
mlir::Operation *copyConstant(mlir::Operation *constant, mlir::Type type, mlir::StringAttr name,
                              mlir::ElementsAttr contents);
/// Gives `constant` the place and the name of `other`, a constant of its kind.
void takeName(mlir::Operation *constant, mlir::Operation *other);

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_CONSTANTS_H
