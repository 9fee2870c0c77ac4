// SPDX-License-Identifier: Apache-2.0
// ONNX Runtime's training artifacts: their files, and their checkpoints.
#ifndef MPT_LIB_IMPORT_PROTO_ARTIFACTS_H
#define MPT_LIB_IMPORT_PROTO_ARTIFACTS_H

#include "Proto.h"

#include "llvm/Support/MemoryBuffer.h"

namespace mpt::proto {

/// One group of an optimizer in a checkpoint: finished steps, and the moments of each parameter.
struct CheckpointOptimizer {
  int64_t step = 0;
  std::vector<std::pair<std::string, std::vector<::onnx::TensorProto>>> moments;
};

/// Tensors of a checkpoint in the order of the file.
struct Checkpoint {
  std::vector<::onnx::TensorProto> trained, frozen;
  std::vector<CheckpointOptimizer> optimizer;
};

/// The parts taken out of a training model and its checkpoint.
struct Artifacts {
  bool found = false; ///< the model is one of ONNX Runtime's
  std::vector<CheckpointOptimizer> optimizer;
};

/// Reads a checkpoint: the flatbuffer of ONNX Runtime (identifier ODTC; onnxruntime/core/flatbuffers/schema,
/// ort_training_checkpoint.fbs), or an ONNX model whose initializers have the values.
llvm::FailureOr<Checkpoint> readCheckpoint(llvm::StringRef bytes, mlir::Location loc);

/// The values in a folder that ONNX Runtime Training before version 1.15 has written.
llvm::FailureOr<Checkpoint> readCheckpointFolder(llvm::StringRef folder, mlir::Location loc);

/// The file at `path`, or an error at `loc` that says `what` it is.
llvm::FailureOr<std::unique_ptr<llvm::MemoryBuffer>> openFile(llvm::StringRef what, llvm::StringRef path,
                                                              mlir::Location loc);

/// True for the node that adds a parameter's gradient to a buffer.
bool isAccumulator(const ::onnx::NodeProto &node);

/// readCheckpoint() of the file, or readCheckpointFolder() of the folder, `options.checkpoint`.
llvm::FailureOr<Checkpoint> openCheckpoint(const ImportOptions &options, mlir::Location loc);

/// Turns a training model into a joint graph: parameters, which it takes as inputs, become initializers with the values
/// of the checkpoint; gradient accumulators go, and their gradients become outputs called P_grad. Files without
/// accumulators get no more than these values.
llvm::FailureOr<Artifacts> takeArtifacts(::onnx::ModelProto &model, const ImportOptions &options, mlir::Location loc);

/// Leaves the optimizer of `options.optimizerModel`, with its own settings and a rate of 1e-3, in `roles`.
llvm::LogicalResult takeOptimizer(const ImportOptions &options, JointRoles &roles, mlir::Location loc);

/// Adds the graph of `options.evalModel` as @evaluation: inputs and initializers called as states of `module` are
/// these, and inputs that only the checkpoint has get its values. One that was found beside the model and cannot be
/// used is left out with a warning.
llvm::LogicalResult addEvaluation(mlir::ModuleOp module, const ImportOptions &options, TrainingForm &form);

/// Adds the moments of trained parameters as optimizer states P.moment1 and P.moment2, and the number of steps, to the
/// states of `module`, from which an optimizer with these states goes on.
llvm::LogicalResult addOptimizerState(mlir::ModuleOp module, std::vector<CheckpointOptimizer> &groups,
                                      JointRoles &roles);

} // namespace mpt::proto

#endif // MPT_LIB_IMPORT_PROTO_ARTIFACTS_H
