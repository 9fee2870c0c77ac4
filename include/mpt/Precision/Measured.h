// SPDX-License-Identifier: Apache-2.0
// Policy auto: types of values from their measured ranges, within an error budget.
#ifndef MPT_PRECISION_MEASURED_H
#define MPT_PRECISION_MEASURED_H

#include "mpt/Dialect/MPT/ValueKeys.h"
#include "mpt/Precision/Settings.h"
#include "mpt/Support/RangeProfile.h"

#include <memory>
#include <optional>

namespace mpt {

/// Settings of `--policy=auto[,base=NAME][,budget=X][,underflow=X][,subnormal=X][,headroom=X]`.
struct AutoSettings {
  std::string base = "amp-f16"; ///< whose types and rules are taken where they fit the measured ranges
  double budget = 0.5;          ///< most that all roundings together may change a result or a gradient of the step
                                ///< (ErrorFlow): L2 norm of the change over the tensor's
  double underflow = 0.01;      ///< most of a tensor's non-zero values that may become zero
  double subnormal = 0.1;       ///< most of them that may become subnormal
  double headroom = 2.0;        ///< by which the largest measured value has to stay below the largest of the type
  bool choosesTypes = true;     ///< else a policy's own rules do, and only values beyond the type's range are kept wide

  /// Of ranges under a policy that is not auto.
  static AutoSettings limitsAlone();

  /// Reads the words after "auto". Returns an error message, or nothing.
  std::string set(llvm::StringRef text);
};

/// Whether a tensor may be stored in a type, and the measurement that says so.
struct Verdict {
  bool fits = true;
  std::string text; ///< "measured 2.1e-07 to 3.4: error 1.9e-04 in f16"
};

/// Ranges of a model's values with the bounds to hold them against.
class Measurements {
public:
  static mlir::FailureOr<std::shared_ptr<const Measurements>> read(llvm::StringRef path, const AutoSettings &settings,
                                                                   mlir::Location loc);

  /// The profile of `value`, whichever function of the model it is in; null when it was not measured.
  const RangeProfile *of(mlir::Value value, const ValueKeys &keys) const;
  /// The profile under a key of the file; null when it was not measured.
  const RangeProfile *named(llvm::StringRef key) const;
  /// The ranges are of the results of a graph's nodes ("node|NAME"), not of a training step.
  bool ofGraph() const;
  /// No value may come near overflow, few may underflow or become subnormal, and rounding by itself must stay within
  /// the budget. `shift` is the power of two that the tensor is multiplied by.
  Verdict judge(const RangeProfile &profile, mlir::FloatType type, int shift) const;
  /// The same for an 8-bit type with a scale of the tensor's own.
  Verdict judgeScaled(const RangeProfile &profile, mlir::FloatType type) const;
  /// The power of two by which a tensor with a scale of its own is multiplied to fill `range`.
  static int ownShift(const RangeProfile &profile, const FloatRange &range);
  double budget() const { return settings.budget; }
  bool choosesTypes() const { return settings.choosesTypes; }
  /// Where the policy scales the loss, its first scale becomes the power of two with which most gradients fit the
  /// storage type; `note` of the settings says how it was found.
  void chooseLossScale(PrecisionSettings &settings) const;

private:
  Verdict judge(const RangeProfile &profile, mlir::FloatType type, int shift, double headroom) const;

  RangeProfiles profiles;
  AutoSettings settings;
};

} // namespace mpt

#endif // MPT_PRECISION_MEASURED_H
