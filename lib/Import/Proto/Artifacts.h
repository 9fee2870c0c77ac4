// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's training artifacts: their files, and their checkpoints.
#ifndef MPT_LIB_IMPORT_PROTO_ARTIFACTS_H
#define MPT_LIB_IMPORT_PROTO_ARTIFACTS_H

#include "Proto.h"

namespace mpt::proto {

/// Tensors of a checkpoint in the order of the file.
struct Checkpoint {
  std::vector<::onnx::TensorProto> trained, frozen;
};

/// Reads a checkpoint: the flatbuffer of ONNX Runtime (identifier ODTC; onnxruntime/core/flatbuffers/schema,
/// ort_training_checkpoint.fbs), or an ONNX model whose initializers have the values.
llvm::FailureOr<Checkpoint> readCheckpoint(llvm::StringRef bytes, mlir::Location loc);

/// Turns a training model into a joint graph: parameters, which it takes as inputs, become initializers with the values
/// of the checkpoint; gradient accumulators go, and their gradients become outputs called P_grad. Returns false for
/// files without accumulators, which stay as they are.
llvm::FailureOr<bool> takeArtifacts(::onnx::ModelProto &model, const ImportOptions &options, mlir::Location loc);

/// Leaves the optimizer of `options.optimizerModel`, with its own settings and a rate of 1e-3, in `roles`.
llvm::LogicalResult takeOptimizer(const ImportOptions &options, JointRoles &roles, mlir::Location loc);

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_ARTIFACTS_H
