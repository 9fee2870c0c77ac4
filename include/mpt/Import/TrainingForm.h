// SPDX-License-Identifier: Apache-2.0
// The parts of training that a file brings beside its forward pass, for the user and for the manifest.
#ifndef MPT_IMPORT_TRAININGFORM_H
#define MPT_IMPORT_TRAININGFORM_H

#include "mlir/IR/BuiltinOps.h"

#include <optional>
#include <string>

namespace mpt {

/// The parts found in a file, in words; empty: none.
struct TrainingForm {
  std::string form;       ///< "TrainingInfoProto", ...
  std::string loss;       ///< name of the value, or of several
  std::string gradients;  ///< of how many tensors, and how the file says so
  std::string recognized; ///< "M of N": gradients of operations that were found in its arithmetic
  std::string optimizer;  ///< operator with its settings
  std::string state;      ///< how many tensors it carries from step to step
  std::string evaluation; ///< whose evaluation it is where the file has its own
  std::string used;       ///< which of these the compilation uses

  /// "TrainingInfoProto: loss 'loss'; gradients of 6 tensors; ...; used: all".
  std::string text() const;
};

/// Puts `form` into the module's `mpt.manifest` as "training", in place of an earlier one.
void note(mlir::ModuleOp module, const TrainingForm &form);
/// The form that note() has put there.
std::optional<TrainingForm> notedForm(mlir::ModuleOp module);

} // namespace mpt

#endif // MPT_IMPORT_TRAININGFORM_H
