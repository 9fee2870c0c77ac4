// SPDX-License-Identifier: Apache-2.0
// Errors that all roundings of a function make in its results, by a model of error propagation.
#ifndef MPT_PRECISION_ERRORFLOW_H
#define MPT_PRECISION_ERRORFLOW_H

#include "mpt/Precision/MeasuredTypes.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

/// Types of the ops of a module, as the solver decides them.
using Decisions = llvm::DenseMap<mlir::Operation *, OpTypes>;

/// Errors of one function's results, relative in the L2 norm, to first order. Roundings count as independent, so that
/// their squares add. An op multiplies the relative error of an operand by its gain: by measured magnitudes where the
/// op is linear in the operand (rounding errors in the terms of a sum add like a random walk, the terms themselves as
/// measured, so that cancellation shows), by the operand's magnitude behind exponentials, and by 1 elsewhere.
///
/// Of flags and integers made of floats (masks, positions of maxima) it is the share that changes: about as large as
/// the error itself, since that is how likely a value is to lie so close to where the choice turns. A value chosen by
/// them is wrong in that share of its elements, so that errors of gradients behind ReLU and max pooling go with the
/// root.
class ErrorFlow {
public:
  /// `values` answers for magnitudes and roundings; it has to outlive the flow.
  ErrorFlow(mlir::func::FuncOp function, const MeasuredTypes &values);

  /// A gradient of a parameter, by the parameter's name, or a float result of the function.
  struct Output {
    std::string name;
    mlir::Value value;
  };
  llvm::ArrayRef<Output> outputs() const { return ends; }

  /// Takes the roundings of these types. Null: the roundings of FP32 alone, and no changed choices.
  void run(const Decisions *decisions);
  double errorOf(const Output &output) const;
  /// How much of the square of `output`'s error each op's own roundings make; their sum is that square.
  llvm::DenseMap<mlir::Operation *, double> sharesOf(const Output &output) const;

private:
  /// An op that reads or makes floats.
  struct Node {
    mlir::Operation *op;
    llvm::SmallVector<double, 2> gains; ///< by operand; 0 where it has no elements to be wrong
    llvm::SmallVector<double, 2> reads; ///< rounding of each operand where the op reads it
    llvm::SmallVector<double, 1> makes; ///< rounding of each result
  };
  double gainOf(mlir::Operation *op, unsigned operand) const;
  /// The factor of the square of operand `i` of `node` in the square of `result`.
  double weightOf(const Node &node, unsigned i, mlir::Value result) const;
  void round(Node &node, const Decisions &decisions) const;
  double squareOf(mlir::Value value) const;

  mlir::func::FuncOp function;
  const MeasuredTypes &values;
  TrainingParts parts;
  std::vector<Node> nodes; ///< in order
  std::vector<Output> ends;
  bool countsChoices = true;
  llvm::DenseMap<mlir::Value, double> squares; ///< of relative errors; shares of flags and integers that changed
};

} // namespace mpt

#endif // MPT_PRECISION_ERRORFLOW_H
