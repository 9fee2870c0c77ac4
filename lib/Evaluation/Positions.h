// SPDX-License-Identifier: Apache-2.0
// Positions that indices lead to, for gathers and scatters.
#ifndef MPT_LIB_EVALUATION_POSITIONS_H
#define MPT_LIB_EVALUATION_POSITIONS_H

#include "mpt/Evaluation/Tensor.h"

#include "mlir/IR/Operation.h"

namespace mpt {

/// Positions in `shape` that each element of `indices` leads to: of whole slices (gather) or of single elements.
/// Element positions and slice starts are in row-major order of the result they belong to.
using Positions = llvm::FailureOr<std::vector<int64_t>>;

/// Positions for gather along `axis`: one an element of the gathered result.
Positions slicePositions(mlir::Operation *op, llvm::ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis);
/// Positions for the element-wise forms: the index's own position with `axis` replaced.
Positions elementPositions(mlir::Operation *op, llvm::ArrayRef<int64_t> shape, const Tensor &indices, int64_t axis);
/// Positions for the tuple forms: `batch` shared leading dimensions, then the tuple, then whole slices.
Positions tuplePositions(mlir::Operation *op, llvm::ArrayRef<int64_t> shape, const Tensor &indices, int64_t batch);

} // namespace mpt

#endif // MPT_LIB_EVALUATION_POSITIONS_H
