// SPDX-License-Identifier: Apache-2.0
// What the assigning passes write on an op (`mpt.precision`).
#ifndef MPT_PRECISION_DECISIONS_H
#define MPT_PRECISION_DECISIONS_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

/// How many slots were decided either way.
struct DecisionCounts {
  int64_t narrow = 0, wide = 0;
};

PrecisionAttr decisionAttr(mlir::Builder &builder, const OpTypes &types, DecisionCounts &counts);

/// What was decided for `op`; no types where nothing was.
OpTypes decisionOf(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_DECISIONS_H
