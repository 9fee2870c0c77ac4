// SPDX-License-Identifier: Apache-2.0
// What the assigning passes write on an op (`mpt.precision`).
#ifndef MPT_PRECISION_DECISIONS_H
#define MPT_PRECISION_DECISIONS_H

#include "mpt/Precision/Solve.h"

#include "mlir/IR/Builders.h"

namespace mpt {

/// How many slots were decided either way.
struct DecisionCounts {
  int64_t narrow = 0, wide = 0;
};

/// {operands, results, rule} with unit for null types; `quantized` as the attribute's description says.
mlir::DictionaryAttr decisionAttr(mlir::Builder &builder, const OpTypes &types, DecisionCounts &counts);

/// What was decided for `op`; no types where nothing was.
OpTypes decisionOf(mlir::Operation *op);

} // namespace mpt

#endif // MPT_PRECISION_DECISIONS_H
