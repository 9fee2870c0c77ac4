// SPDX-License-Identifier: Apache-2.0
// The types that the assigning passes write on an op (`mpt.precision`).
#ifndef MPT_PRECISION_DECISIONS_H
#define MPT_PRECISION_DECISIONS_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Precision/Solve.h"

namespace mpt {

/// How many operands and results were decided either way.
struct DecisionCounts {
  int64_t narrow = 0, wide = 0;
};

PrecisionAttr decisionAttr(mlir::Builder &builder, const OpTypes &types, DecisionCounts &counts);

/// The types decided for `op`; none where nothing was decided.
OpTypes decisionOf(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_DECISIONS_H
