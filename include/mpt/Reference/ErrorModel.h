// SPDX-License-Identifier: Apache-2.0
// How far two correct evaluations of one function may differ: rounding-error bounds from reduction lengths and types.
#ifndef MPT_REFERENCE_ERRORMODEL_H
#define MPT_REFERENCE_ERRORMODEL_H

#include "mpt/Evaluation/Tensor.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

class TensorCore;

/// First-order rounding errors, added up over the ops of a computation.
struct ErrorModel {
  /// Error relative to the magnitude of results: roundings to result types, and sums.
  double relative = 0.0;
  /// Error relative to the magnitude of inputs: the loss of sums where terms cancel, by their accumulators'
  /// epsilons alone.
  double cancellation = 0.0;

  /// Sum of `length` terms: inputs with relative error `inputEpsilon`, sums rounded with `accumulationEpsilon` in any
  /// order, the result rounded with `resultEpsilon`. First-order bound of Higham (Accuracy and Stability of Numerical
  /// Algorithms, 2nd ed., section 3.1) relative to the sum of magnitudes.
  static double ofSum(int64_t length, double inputEpsilon, double accumulationEpsilon, double resultEpsilon) {
    return inputEpsilon + static_cast<double>(length) * accumulationEpsilon + resultEpsilon;
  }

  /// Sum over all ops of `function` of ofSum with the op's reduction length (contracted extents, reduced elements, or
  /// 1), the epsilon of its accumulator and of its result type. Ops that only move values add nothing. Twice that,
  /// since two evaluations are compared, and four units of the result's rounding for functions approximated by
  /// polynomials. On a Tensor Core, contractions err as its sums do.
  static ErrorModel of(mlir::func::FuncOp function, const TensorCore *core = nullptr);

  /// Largest allowed |actual - expected| of elements of `expected` when the inputs' largest finite magnitude is
  /// `inputMagnitude`; at least one unit in the last place of its largest element. 0 for integers.
  double tolerance(const Tensor &expected, double inputMagnitude) const;
};

/// About how many terms meet in one result element of `op`, from the extents alone: exact for GEMMs and reductions; for
/// a convolution's terms, K taps a channel count as the root of K, which errors of random sign stay below.
int64_t reductionLength(mlir::Operation *op);

/// Error of the sums of `op` on a Tensor Core relative to their size, when errors have random signs; 0 where it does
/// not compute them, or there is none.
double tensorCoreError(mlir::Operation *op, const TensorCore *core);

/// Largest finite magnitude of a float tensor's elements; 0 for integers.
double largestMagnitude(const Tensor &tensor);

} // namespace mpt

#endif // MPT_REFERENCE_ERRORMODEL_H
