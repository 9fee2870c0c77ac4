// Core graphs to ONNX files.
#ifndef MPT_EXPORT_EXPORT_H
#define MPT_EXPORT_EXPORT_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// The opset that exported files import, and their IR version.
inline constexpr int64_t exportOpset = 20, exportIRVersion = 10;

/// Writes `function` and the state it reads as a binary ONNX model of standard operators: arguments and results under
/// their `mpt.name`, states read as initializers, and each `train.write @s` as an output `s_next`. Where the
/// initializers exceed 1 GiB they go to `<path>.data` beside it. The file appears whole or not at all. Errors are
/// located at the op that has no ONNX form.
llvm::LogicalResult exportOnnx(mlir::ModuleOp module, mlir::func::FuncOp function, llvm::StringRef path);

/// Writes a graph of ONNX nodes (see importNodes) back, under the opset and IR version it came with. Tensors go to
/// `<path>.data` where they exceed 1 GiB or lay beside the model. Initializers are read, converted and written piece by
/// piece, so memory does not grow with them.
llvm::LogicalResult exportNodes(mlir::ModuleOp module, llvm::StringRef path);

} // namespace mpt

#endif // MPT_EXPORT_EXPORT_H
