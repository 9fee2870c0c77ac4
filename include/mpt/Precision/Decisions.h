// SPDX-License-Identifier: Apache-2.0
// What the assigning passes write on an op (`mpt.precision`).
#ifndef MPT_PRECISION_DECISIONS_H
#define MPT_PRECISION_DECISIONS_H

#include "mlir/IR/Builders.h"

namespace mpt {

/// How many slots were decided either way.
struct DecisionCounts {
  int64_t narrow = 0, wide = 0;
};

/// {operands, results, rule} with unit for null types; `quantized` as the attribute's description says.
mlir::DictionaryAttr decisionAttr(mlir::Builder &builder, llvm::ArrayRef<mlir::Type> operands,
                                  llvm::ArrayRef<mlir::Type> results, mlir::StringAttr rule, bool quantized,
                                  DecisionCounts &counts);

} // namespace mpt

#endif // MPT_PRECISION_DECISIONS_H
