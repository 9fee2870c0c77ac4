// SPDX-License-Identifier: Apache-2.0
// Reshapes and transposes moved off the ops of attention.
#ifndef MPT_LIBRARY_HEADVIEWS_H
#define MPT_LIBRARY_HEADVIEWS_H

#include "mlir/IR/PatternMatch.h"

namespace mpt {

/// Dimensions of attention: batch, heads, queries, keys.
constexpr int64_t splitRank = 4;

/// An op with the same meaning in any shape: elements follow from the operands' at the same place, or at the same place
/// of the row where it is a softmax.
bool isCarried(mlir::Operation *op);
/// A reshape or a transpose.
bool isView(mlir::Operation *op);

/// Views above an op go below it, or the other way round, so that attention has `splitRank` dimensions and its
/// probabilities are the first operand of a GEMM.
void populateHeadViewPatterns(mlir::RewritePatternSet &set);

} // namespace mpt

#endif // MPT_LIBRARY_HEADVIEWS_H
