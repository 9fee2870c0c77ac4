// SPDX-License-Identifier: Apache-2.0
// Rows of a recurrent layer's batch that end before its input does.
#ifndef MPT_LIB_IMPORT_ROWLENGTHS_H
#define MPT_LIB_IMPORT_ROWLENGTHS_H

#include "Binder.h"

namespace mpt {

/// Lengths of the rows of [steps, batch, n] tensors. Rows run on over zeros, and the results are masked. Backward
/// in time a row begins at its own end: reversed within its length, it runs forward.
class RowLengths {
public:
  /// False where operand `i` is absent, or all rows have as many steps as the input.
  static bool endEarly(Binder &b, unsigned i, int64_t steps);
  /// Operand `i` [batch], integers; lengths above `steps` are taken as `steps`.
  RowLengths(Binder &b, unsigned i, int64_t steps);

  /// `x`, zero behind the rows' ends.
  mlir::Value within(mlir::Value x) const;
  /// `x` reversed within each row, which undoes itself.
  mlir::Value reversed(mlir::Value x) const;
  /// Of `states`, each row's last: [batch, n]; `before` where it has no step.
  mlir::Value lastOf(mlir::Value states, mlir::Value before) const;
  /// The gradient of `lastOf`: `d` [batch, n] at each row's last step, zero elsewhere.
  mlir::Value atLast(mlir::Value d) const;
  /// `x` [batch, n] of rows without a step, zero for others.
  mlir::Value ofEmpty(mlir::Value x) const;

private:
  /// The number of each step, in `shape`.
  mlir::Value stepNumbers(llvm::ArrayRef<int64_t> shape) const;

  Binder &b;
  int64_t steps;
  mlir::Value lengths; ///< [batch], i64
};

} // namespace mpt

#endif // MPT_LIB_IMPORT_ROWLENGTHS_H
