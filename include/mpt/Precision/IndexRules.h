// SPDX-License-Identifier: Apache-2.0
// Arithmetic that ends in an index.
#ifndef MPT_PRECISION_INDEXRULES_H
#define MPT_PRECISION_INDEXRULES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseSet.h"

namespace mpt {

/// Elementwise arithmetic and movement, in core ops or ONNX nodes, from which floats are made that become integers:
/// sample positions, buckets, addresses. f16 counts in steps of 2 beyond 2048 and bf16 beyond 256, so that a rounded
/// one names another element. Ends at contractions, reductions and whatever chooses its types itself.
llvm::DenseSet<mlir::Operation *> indexArithmetic(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_PRECISION_INDEXRULES_H
