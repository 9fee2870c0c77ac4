// SPDX-License-Identifier: Apache-2.0
// Nodes that stay FP32 in optimizers that are written in ONNX operators.
#ifndef MPT_PRECISION_OPTIMIZERRULES_H
#define MPT_PRECISION_OPTIMIZERRULES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Nodes of the graph `main` that no policy narrows, with the rule that says so:
///  * optimizer.second_moment: the running sum of squared gradients of Adam, AMSGrad, RMSProp and Adagrad, from the
///    square to the root. Squares of gradients below 2^-12 leave f16's range from below.
///  * optimizer.epsilon: the addition to the root, or under it, and the division by it. Adam's 1e-8 is 0 in f16, and
///    added to a root of 2^-16 or more it is lost in bf16.
/// A running sum is an addition of a square, scaled or not, to a scaled input or initializer of the graph (or to
/// another running sum), whose result reaches a root through scalings, maxima and additions of scalars.
llvm::DenseMap<mlir::Operation *, llvm::StringRef> optimizerPins(mlir::func::FuncOp main);

} // namespace mpt

#endif // MPT_PRECISION_OPTIMIZERRULES_H
