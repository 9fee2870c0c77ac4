// SPDX-License-Identifier: Apache-2.0
// Helpers that decompositions into core ops share.
#ifndef MPT_LIB_LOWERING_MODELS_DECOMPOSITIONS_H
#define MPT_LIB_LOWERING_MODELS_DECOMPOSITIONS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

namespace mpt {

/// The results of Decomposable::decompose.
using Values = llvm::FailureOr<llvm::SmallVector<mlir::Value>>;

/// A scalar in every element of a tensor of `like`'s shape.
inline mlir::Value everywhere(GraphBuilder &b, mlir::Value scalar, mlir::Value like) {
  return b.broadcast(scalar, shapeOf(like), {});
}

inline llvm::SmallVector<int64_t> allAxes(mlir::Value value) { return axisRange(0, rankOf(value)); }

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_DECOMPOSITIONS_H
