// SPDX-License-Identifier: Apache-2.0
// Findings of mpt-run about a training step that it runs: ranges, and where it overflows.
#ifndef MPT_REFERENCE_CALIBRATE_H
#define MPT_REFERENCE_CALIBRATE_H

#include "mpt/Reference/Interpreter.h"
#include "mpt/Support/RangeProfile.h"

#include "llvm/Support/JSON.h"
#include <optional>

namespace mpt {

/// Inputs by name, one map a step.
using Batch = std::map<std::string, Tensor>;

/// Reads safetensors files, a batch each.
llvm::FailureOr<std::vector<Batch>> readBatches(mlir::ModuleOp module, llvm::ArrayRef<std::string> paths);

/// `function`'s inputs in order, from `batch`. An input that the batch lacks takes its default (`mpt.default`, the
/// learning rate's); without one it is an error. `rounds` as in Tensor::as.
llvm::FailureOr<llvm::SmallVector<Tensor>> bindInputs(mlir::func::FuncOp function, const Batch &batch, bool rounds);

/// Runs @step once on every batch in turn, for `steps` steps (0: one for each batch), and gathers the magnitudes of all
/// float values: inputs, activations, weights and gradients. Of a module that is just imported, with @forward alone,
/// the values that nodes of the model hand on, under "node|NAME".
llvm::FailureOr<RangeProfiles> calibrate(mlir::ModuleOp module, llvm::ArrayRef<Batch> batches, int64_t steps);

/// The op at which a step stopped being finite.
struct Blame {
  int64_t step = 0;             ///< from 0
  std::string node, op, result; ///< ONNX node, operation, type of the result; op is empty for an input or a state
  std::string name;             ///< of the input or state that was not finite from the start
  int64_t infinities = 0, nans = 0, count = 0;
  double largest = 0.0; ///< magnitude the result has in FP64, before any rounding; infinite when FP64 overflows too
  double limit = 0.0;   ///< largest finite value of the result's type
  double scale = 1.0;   ///< loss scale of the step, when the value is a gradient
  std::string advice;   ///< flags to add to the command line, or something to look at

  std::string message() const;
  llvm::json::Value toJSON() const;
};

/// Runs as calibrate() does and names the origin of each step that was skipped or whose loss is not finite. With
/// `function` "evaluate" or "forward" nothing is skipped: every run that yields a value that is not finite counts.
llvm::FailureOr<std::vector<Blame>> blame(mlir::ModuleOp module, llvm::ArrayRef<Batch> batches, int64_t steps);

} // namespace mpt

#endif // MPT_REFERENCE_CALIBRATE_H
