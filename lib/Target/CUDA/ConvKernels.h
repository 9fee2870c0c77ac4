// SPDX-License-Identifier: Apache-2.0
// Kernels of convolutions: as GEMMs whose elements are gathered as they are needed, and depthwise ones directly.
#ifndef MPT_LIB_TARGET_CUDA_CONVKERNELS_H
#define MPT_LIB_TARGET_CUDA_CONVKERNELS_H

#include "mpt-c/abi.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::cuda {

/// `kind` as in mpt_conv_desc. Backward weights leave FP32 sums of slices of their terms.
struct ConvKernel {
  int64_t kind;
  mlir::Type operand, result;
  bool vectors; ///< of channels, whose counts in a group are multiples of conv::vectorWidth

  /// mpt_conv_{forward,data,weights}_<operand>_<result>_{v,s}
  std::string name() const;
};

/// @name(source, filters, target, words): x, w and y of the forward kind, y, w and x of backward data; of backward
/// weights y, x and w. `words`: conv::Word and the tables behind them.
mlir::func::FuncOp makeConvKernel(mlir::OpBuilder &builder, mlir::Location loc, const ConvKernel &kernel);

/// @<conv::directName>(source, other, target): x, w and y of the forward kind, y, w and x of backward data; of backward
/// weights x, y and FP32 sums of w, a slice of the positions behind another. For conv::hasDirect(desc).
mlir::func::FuncOp makeDepthwiseKernel(mlir::OpBuilder &builder, mlir::Location loc, const mpt_conv_desc &desc);

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_CONVKERNELS_H
