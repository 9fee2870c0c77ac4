// SPDX-License-Identifier: Apache-2.0
// Where the ONNX dialect gets numeric classes and kinds of arithmetic from: the layer that knows the meaning of each
// operator registers them.
#ifndef MPT_DIALECT_ONNX_OPERATORCLASSES_H
#define MPT_DIALECT_ONNX_OPERATORCLASSES_H

#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Interfaces/Arithmetic.h"

#include "mlir/IR/DialectInterface.h"
#include <optional>

namespace mpt::onnx {

/// The role of an operand in training.
enum class OperandUse {
  Data,   ///< values that flow through the network, or say how
  Weight, ///< trained: weights, with the biases and scales beside them
  Either  ///< of arithmetic on two values: a bias, a scale, or a constant
};

/// An interface of the dialect, which lib/Import implements by the entries of its rules (registerOperatorClasses).
/// Nodes of operators without an entry, and all nodes where nobody registers any, are pinned: the function of an
/// operator must be known before it may be narrow.
class OperatorClasses : public mlir::DialectInterface::Base<OperatorClasses> {
public:
  explicit OperatorClasses(mlir::Dialect *dialect) : Base(dialect) {}
  ~OperatorClasses() override = default;
  /// Nothing for operators that are not known.
  virtual std::optional<NumericClass> classOf(NodeOp node) const = 0;
  /// Unknown for these.
  virtual Arithmetic arithmeticOf(NodeOp node) const = 0;
  /// Data for these.
  virtual OperandUse useOf(NodeOp node, unsigned operand) const = 0;
};

} // namespace mpt::onnx

#endif // MPT_DIALECT_ONNX_OPERATORCLASSES_H
