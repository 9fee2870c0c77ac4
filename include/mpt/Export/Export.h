// SPDX-License-Identifier: Apache-2.0
// Core graphs to ONNX files.
#ifndef MPT_EXPORT_EXPORT_H
#define MPT_EXPORT_EXPORT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// The opset that exported core graphs import, and their IR version. Opset 22 is the first in which convolutions,
/// pooling and all activations take bf16.
inline constexpr int64_t exportOpset = 22, exportIRVersion = 10;

/// Domain of the model-local functions in exported files; their bodies are standard operators.
inline constexpr llvm::StringLiteral exportDomain = "mpt";

/// Where a training step's nodes lie in the file.
enum class StepForm {
  Joint,       ///< all in the model's graph: any executor runs a step
  TrainingInfo ///< the model's graph is the model in use, TrainingInfoProto's algorithm the step, with update bindings
};

/// How a training step is written.
struct StepFile {
  StepForm form = StepForm::Joint;
  bool widens = false;      ///< bf16 values are computed in wider types between casts, for executors without bf16
  bool portable = false;    ///< floats are f32 and f16 alone, as execution providers have them
  bool stateInputs = false; ///< states that a step changes are inputs, whose defaults are their initializers
};

/// Writes `function` and the state it reads as a binary ONNX model of standard operators: arguments and results under
/// their `mpt.name`, states as initializers. Where the initializers exceed 1 GiB they go to `<path>.data` beside it.
/// Tensors are read, converted and written piece by piece, so memory does not grow with them. The file appears whole or
/// not at all. Errors are located at the op that has no ONNX form.
llvm::LogicalResult exportOnnx(mlir::ModuleOp module, mlir::func::FuncOp function, llvm::StringRef path);

/// Writes func @step as a training step. Each state is an initializer `s`, its new value an output `s_next`; the
/// model's metadata `mpt.states` says role and output of every state (see docs/onnx.md), so that import makes the
/// same step of it. The model in use is func @predict or, without one, func @evaluate. Errors of portable files are
/// located at the first op whose type they cannot have.
llvm::LogicalResult exportStep(mlir::ModuleOp module, const StepFile &file, llvm::StringRef path);

/// Writes a graph of ONNX nodes (see importNodes) back, under the opset and IR version it came with. Tensors go to
/// `<path>.data` where they exceed 1 GiB or lay beside the model. Initializers are read, converted and written piece by
/// piece, so memory does not grow with them.
llvm::LogicalResult exportNodes(mlir::ModuleOp module, llvm::StringRef path);

} // namespace mpt

#endif // MPT_EXPORT_EXPORT_H
