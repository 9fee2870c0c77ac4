// SPDX-License-Identifier: Apache-2.0
// What a matrix product does to its result before it is stored.
#ifndef MPT_MEMORY_EPILOGUE_H
#define MPT_MEMORY_EPILOGUE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

struct Epilogue {
  mlir::Value bias; ///< one value a column, or null
  /// FP32 numbers that a device multiplies 8-bit operands by, or null.
  mlir::Value operandScales[2];
  mlir::Value scale;   ///< an FP32 number that alpha is multiplied by, or null
  FusionOp activation; ///< what the product makes in the place of its result (`mpt.epilogue`), or null
  FusionOp sums;       ///< what it makes beside its result (`mpt.epilogue`), or null
  int64_t flags = 0;   ///< MPT_GEMM_RELU, MPT_GEMM_ROUND; those of the fusions
  double alpha = 1.0;  ///< of the product
};

/// Takes the addition of a bias, and a ReLU after it, out of the fusions that read products. In narrow types the
/// product and the sum are each rounded, as the ops say. An FP32 product of which a fusion reads no more than its
/// multiple by an FP32 number, rounded to f16, is stored as that (not with `device`).
///
/// With `device`, biases are found through reshapes that keep the columns, and multiplications of operands and results
/// by a constant become the product's alpha, which is applied to sums in FP32: one rounding less in narrow types.
/// Fusions with `mpt.epilogue` are given to their products.
/// With `nativeFloat8` as well, scales of 8-bit operands go to the product, and so does the rounding of what they
/// scale.
llvm::DenseMap<mlir::Operation *, Epilogue> foldEpilogues(mlir::func::FuncOp function, bool device, bool nativeFloat8);

} // namespace mpt::memory

#endif // MPT_MEMORY_EPILOGUE_H
