// SPDX-License-Identifier: Apache-2.0
// Roots of sums of powers, whose slope at 0 is infinite and meets a slope of 0 behind it.
#ifndef MPT_LIB_IMPORT_ROOTS_H
#define MPT_LIB_IMPORT_ROOTS_H

#include "Binder.h"

namespace mpt {

/// The p-th root of a sum of p-th powers. Where all of these are 0 its slope is 0, as in training frameworks, not NaN.
inline mlir::Value rootOfPowers(Binder &b, mlir::Value sum, int64_t p = 2) {
  if (p == 1)
    return sum;
  mlir::Value isZero = b.compare(Predicate::eq, sum, 0.0), safe = b.select(isZero, b.splatLike(sum, 1), sum);
  mlir::Value root = p == 2 ? b.make<SqrtOp>(safe) : b.make<PowOp>(safe, b.splatLike(safe, 1 / static_cast<double>(p)));
  return b.select(isZero, sum, root);
}

} // namespace mpt

#endif // MPT_LIB_IMPORT_ROOTS_H
