// SPDX-License-Identifier: Apache-2.0
// Types for values of one module by their measured ranges.
#ifndef MPT_PRECISION_MEASUREDTYPES_H
#define MPT_PRECISION_MEASUREDTYPES_H

#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Precision/Policy.h"

namespace mpt {

/// Answers the solver's questions under policy auto.
class MeasuredTypes {
public:
  MeasuredTypes(mlir::ModuleOp module, const Policy &policy);

  struct Choice {
    bool fits = true; ///< all measured values fit the storage type
    std::string text; ///< the measurement that decided; empty when nothing was measured
    mlir::Type other; ///< where they do not fit: BF16 if all fit that, else null
  };
  Choice choose(llvm::ArrayRef<mlir::Value> values) const;
  /// All float values that `op` reads and makes were measured.
  bool knows(mlir::Operation *op) const;
  /// Why operands of a GEMM may not be converted to the policy's 8-bit types, or nothing.
  std::string refuseQuantizing(mlir::Operation *op, const TrainingParts &parts) const;

  // ---- for error flow

  /// Measured root mean square of `value`; 0 where it was not measured.
  double magnitudeOf(mlir::Value value) const;
  /// L2 norm of the error of rounding `value` to `type`, over the value's own; of normal values where it was not
  /// measured.
  double roundingOf(mlir::Value value, mlir::Type type) const;
  /// The same for an operand in the policy's 8-bit type, with its own scale where the policy has such.
  double roundingOfQuantized(mlir::Value value, bool isGradient) const;

private:
  int shiftOf(const RangeProfile &profile) const;

  const Policy &policy;
  ValueKeys keys;
  int gradientShift = 0;
};

/// The same for a graph of ONNX nodes, by ranges that were measured of its nodes' results.
class MeasuredNodes {
public:
  explicit MeasuredNodes(const Policy &policy) : policy(policy) {}

  struct Choice {
    bool fits = true;   ///< all measured FP32 values that the node reads and makes fit the storage type
    bool known = false; ///< all of them were measured
    std::string text;   ///< the measurement that decided; empty when nothing was measured
  };
  Choice choose(mlir::Operation *node) const;

private:
  const RangeProfile *profileOf(mlir::Value value) const;

  const Policy &policy;
};

} // namespace mpt

#endif // MPT_PRECISION_MEASUREDTYPES_H
