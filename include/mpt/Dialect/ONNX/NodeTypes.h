// SPDX-License-Identifier: Apache-2.0
// The float types that the ONNX schemas allow for a node's operands and results.
#ifndef MPT_DIALECT_ONNX_NODETYPES_H
#define MPT_DIALECT_ONNX_NODETYPES_H

#include "mpt/Dialect/ONNX/ONNXDialect.h"

namespace mpt::onnx {

/// Operands and results by their type variable in the schema of the node's version. A group has one element type.
struct NodeTypes {
  static constexpr int kFixed = -1; ///< keeps the type it has in the file
  static constexpr int kAny = -2;   ///< takes whatever type arrives

  llvm::SmallVector<int, 4> operands, results; ///< group, kFixed or kAny
  int groups = 0;
  int main = kFixed; ///< the group of the node's data, which has its first grouped operand or result
};

/// Groups of `node` whose members may have element type `narrow` as well as FP32. A group holds only values that are
/// FP32 tensors now; one with a value of an unknown type, a sequence or an optional is fixed as a whole, and so is
/// everything of a node without a schema or with subgraphs.
NodeTypes nodeTypes(NodeOp node, mlir::Type narrow);

/// A node whose FP32 result is stated by an attribute: it can be there in another type, where the node's version
/// has results of type `narrow`.
bool isConstantNode(NodeOp node, mlir::Type narrow);

/// A Cast from one element type to another one, as the types stand now.
bool isCast(NodeOp node, mlir::Type from, mlir::Type to);

/// ONNX's number for an element type; 0 where it has none.
int elementTypeNumber(mlir::Type type);

/// True for tensors, of whatever rank, of FP32 elements.
bool isFloat32Tensor(mlir::Type type);

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_NODETYPES_H
