// SPDX-License-Identifier: Apache-2.0
// A compilation's model: reading it, and saying once what was found there.
#ifndef MPT_DRIVER_READMODEL_H
#define MPT_DRIVER_READMODEL_H

#include "Messages.h"

#include "mpt/Import/Template.h"
#include "mpt/Import/TrainingForm.h"
#include "passes/Pipelines.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace mpt {

class ModelReader {
public:
  /// Settings of the file go to `pipeline`, and its graph to `module`.
  ModelReader(Messages &messages, PipelineOptions &pipeline, mlir::OwningOpRef<mlir::ModuleOp> &module,
              mlir::MLIRContext &context)
      : messages(messages), options(messages.options), pipeline(pipeline), module(module), context(context) {}

  /// The model as a module, with the extents of `size`.
  llvm::LogicalResult read(const Size &size);
  /// The training phase makes steps of the file's algorithms where it brings some.
  llvm::LogicalResult countAlgorithms();
  /// Arithmetic that stays as the file wrote it has other precision classes than the operation would have.
  void sayRecognized();
  /// A backward pass among the nodes is rewritten like all others, and nothing scales its gradients.
  void sayNodesForm();
  /// Where the compilation has a training step, made here or brought by the file.
  bool makesStep();
  /// A flag given that is about training steps; empty where none is.
  std::string flagOfSteps() const;

  TensorSites sites; ///< of states in the file

private:
  /// Says which parts of training the file holds, and which of them are used.
  void sayForm();
  /// Says which parameters train and which are held. A step that trains nothing is a mistake.
  llvm::LogicalResult sayTrained();
  /// The parts of the file's training that the step has, and the sources of the rest.
  std::string usedOf(const TrainingForm &form);
  /// A joint graph has its loss, and an optimizer where the user names none.
  llvm::LogicalResult takeForm();

  Messages &messages;
  const CompileOptions &options;
  PipelineOptions &pipeline;
  mlir::OwningOpRef<mlir::ModuleOp> &module;
  mlir::MLIRContext &context;
};

} // namespace mpt

#endif // MPT_DRIVER_READMODEL_H
