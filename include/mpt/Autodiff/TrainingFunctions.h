// SPDX-License-Identifier: Apache-2.0
// Editing the functions of a training module: arguments and results by name, clones, state.
#ifndef MPT_AUTODIFF_TRAININGFUNCTIONS_H
#define MPT_AUTODIFF_TRAININGFUNCTIONS_H

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// The function `name` with a body of one block; an error at the module, and null, when there is none.
mlir::func::FuncOp findFunction(mlir::ModuleOp module, llvm::StringRef name);

/// The name (mpt.name) of an argument or a result; empty without one.
llvm::StringRef nameOfArgument(mlir::func::FuncOp function, unsigned index);
llvm::StringRef nameOfResult(mlir::func::FuncOp function, unsigned index);

/// Appends an argument.
mlir::Value addArgument(mlir::func::FuncOp function, llvm::StringRef name, mlir::Type type,
                        std::optional<train::Role> role = std::nullopt);
/// Erases the argument `name` when it is there and unused.
void eraseUnusedArgument(mlir::func::FuncOp function, llvm::StringRef name);

struct NamedValue {
  NamedValue(std::string name, mlir::Value value, std::optional<train::Role> role = std::nullopt)
      : name(std::move(name)), value(value), role(role) {}
  /// A result that is called as its role.
  NamedValue(train::Role role, mlir::Value value) : NamedValue(train::stringifyRole(role).str(), value, role) {}
  std::string name;
  mlir::Value value;
  std::optional<train::Role> role; ///< its role for the runtime
};
/// The results of the function, with names.
llvm::SmallVector<NamedValue> namedResults(mlir::func::FuncOp function);
/// Makes the function return exactly `results`. A name that one with a role, or an earlier one, has gets a number:
/// name_1.
void setResults(mlir::func::FuncOp function, llvm::ArrayRef<NamedValue> results);
/// Appends a result that is called as its role.
void addResult(mlir::func::FuncOp function, train::Role role, mlir::Value value);

/// A copy after `function` under another symbol name.
mlir::func::FuncOp cloneFunction(mlir::func::FuncOp function, llvm::StringRef name);

/// Adds a state after the existing ones, every element `fill`. One of that name, role and type is it already; an error
/// at `module`, and null, when anything else has the name.
train::StateOp addState(mlir::ModuleOp module, train::Role role, llvm::StringRef name, mlir::RankedTensorType type,
                        double fill, llvm::StringRef of = {});

/// Parameters that are trained and stored narrower than FP32 become FP32; their readers cast back.
llvm::LogicalResult widenParameters(mlir::ModuleOp module);

/// The value of state `name` in `function`: its first read, or a new one at the start.
mlir::Value readState(mlir::func::FuncOp function, llvm::StringRef name, mlir::Type type);
/// Leaves one read a state, the first, and replaces the others by it.
void mergeReads(mlir::func::FuncOp function);

/// Gives each draw a stream of its own, which ops of one stream stay in, and moves the generators on by one step.
void advanceGenerators(mlir::func::FuncOp function);

/// The copy of `function` as the model is used after training: ops in their evaluation form, no state written. Returns
/// how many ops were replaced.
llvm::FailureOr<int64_t> makeEvaluationForm(mlir::func::FuncOp function, llvm::StringRef name);
/// The same of `evaluate` itself.
llvm::FailureOr<int64_t> toEvaluationForm(mlir::func::FuncOp evaluate);

/// min(1, norm / (global L2 norm of the gradients + 1e-6)), FP32; the norm becomes the result "grad_norm".
mlir::Value clipCoefficient(mlir::func::FuncOp function, mlir::OpBuilder &builder,
                            llvm::ArrayRef<train::GradientOp> gradients, double norm);
/// The gradient, widened, times a coefficient.
mlir::Value clippedGradient(mlir::OpBuilder &builder, train::GradientOp gradient, mlir::Value coefficient);

} // namespace mpt

#endif // MPT_AUTODIFF_TRAININGFUNCTIONS_H
