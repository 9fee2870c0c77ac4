// SPDX-License-Identifier: Apache-2.0
// Gradients in the words of exporters, and the forward ops that they belong to.
#ifndef MPT_AUTODIFF_BACKWARDFORMS_H
#define MPT_AUTODIFF_BACKWARDFORMS_H

#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "llvm/ADT/DenseSet.h"

#include <optional>

namespace mpt {

/// `dy` is selected where the result `y` of a ReLU is positive; zeros elsewhere.
struct Masked {
  mlir::Value y, dy;
};
std::optional<Masked> maskedByRelu(SelectOp select);

/// The max pooling whose gradient `scatter` is.
MaxPoolOp scatteredBy(ScatterElementsOp scatter);

/// The tensor that is spread evenly over the windows of a pooling: the one that is divided by the number of a window's
/// elements and transposed through a convolution with ones. Null where the factors are others.
mlir::Value spreadEvenly(ConvBackwardDataOp conv);
/// The average pooling of the forward pass with the windows of `conv`, over as many planes of the same extents.
AvgPoolOp pooledBy(ConvBackwardDataOp conv, const llvm::DenseSet<mlir::Operation *> &forwardPass);

/// The gradient of rows: the added values, and their indices.
struct RowGradient {
  mlir::Value indices, updates;
  mlir::Location loc;
};
/// The rows whose gradient is `scatter`: tuples of one index, into zeros, by which the forward pass reads such a table.
std::optional<RowGradient> rowsOf(ScatterNDOp scatter, const llvm::DenseSet<mlir::Operation *> &forwardPass);

/// A convolution's weights and their gradient, which another convolution computes that sums over the batch.
struct WeightGradient {
  mlir::Value x, dy;           ///< dy is null where it has to be transposed out of the convolution's operand
  mlir::RankedTensorType type; ///< [output channels, input channels of a group, kernel...]
};
/// The part of the result that readers look at: exporters compute a wider one where strides leave a rest, and cut one
/// dimension after the other.
mlir::Value cutOf(ConvOp conv);
/// The gradient of weights with extents `kernel` that `conv` computes as a sum over the batch.
std::optional<WeightGradient> overBatch(ConvOp conv, llvm::ArrayRef<int64_t> kernel);

} // namespace mpt

#endif // MPT_AUTODIFF_BACKWARDFORMS_H
