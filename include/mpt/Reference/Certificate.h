// SPDX-License-Identifier: Apache-2.0
// Validation of a training step, as it ships, against the same model in FP64 within error bounds.
#ifndef MPT_REFERENCE_CERTIFICATE_H
#define MPT_REFERENCE_CERTIFICATE_H

#include "mpt/Reference/Calibrate.h"

namespace mpt {

/// Error bounds of a validation. Absent ones follow from the error model: the spread of runs in FP64 whose values were
/// moved at random by up to one rounding of their types (Parker, Monte Carlo arithmetic, 1997).
struct CertificateLimits {
  std::optional<double> lossDifference; ///< relative, of any step's loss against FP64
  std::optional<double> gradientCosine; ///< smallest cosine of a parameter's gradient with its FP64 gradient
  std::optional<double> gradientError;  ///< norm of a gradient's difference, relative to its FP64 gradient
  std::optional<double> updateError;    ///< the same of a step's update of a parameter
  std::optional<double> ulp;            ///< mean error of a tensor's values, in units in the last place of its type
  double overflowShare = 0.0;           ///< largest share of a tensor's values that are finite in FP64 alone
  double underflowShare = 0.05;         ///< largest share of a tensor's values that became zero
  double skippedShare = 0.5;            ///< largest share of steps skipped
};

using NamedTensors = std::map<std::string, Tensor>;

/// The subject of a validation: a training step with its state.
class CertifiedStep {
public:
  virtual ~CertifiedStep() = default;
  /// Every tensor of the state.
  virtual llvm::FailureOr<NamedTensors> state() = 0;
  /// Calls "step" or "gradients"; results by name.
  virtual llvm::FailureOr<NamedTensors> call(llvm::StringRef function, const Batch &batch) = 0;
};

/// `module` in the interpreter, which rounds every value to its type, and adds up as `core` does if there is one.
llvm::FailureOr<std::unique_ptr<CertifiedStep>> interpretedStep(mlir::ModuleOp module,
                                                                const TensorCore *core = nullptr);

/// The library in `folder` (or that file), emitted of the same model and flags as `module`, run by the runtime library
/// in the file `runtime`.
llvm::FailureOr<std::unique_ptr<CertifiedStep>> emittedStep(mlir::ModuleOp module, llvm::StringRef folder,
                                                            llvm::StringRef runtime);

/// Runs `subject` step by step, and from its state before each step three others: `module`, the intended computation,
/// in the interpreter's exact mode; `reference` (the same model in FP32) in FP64; and the error model. Compares losses,
/// gradients, updates, skipped steps, all state, and within `module` every tensor with its FP64 value. The subject's
/// products, where it runs on a Tensor Core, are those of `core`.
/// The result is a report: {"pass", "limits", "steps", "gradients", "updates", "meant", "tensors", "failures"}.
llvm::FailureOr<llvm::json::Object> certify(CertifiedStep &subject, mlir::ModuleOp module, mlir::ModuleOp reference,
                                            llvm::ArrayRef<Batch> batches, int64_t steps,
                                            const CertificateLimits &limits, const TensorCore *core = nullptr);

} // namespace mpt

#endif // MPT_REFERENCE_CERTIFICATE_H
