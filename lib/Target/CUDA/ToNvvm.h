// SPDX-License-Identifier: Apache-2.0
// GPU kernels in the LLVM dialect.
#ifndef MPT_LIB_TARGET_CUDA_TONVVM_H
#define MPT_LIB_TARGET_CUDA_TONVVM_H

#include "mlir/IR/BuiltinOps.h"

namespace mlir {
class LLVMTypeConverter;
class RewritePatternSet;
} // namespace mlir

namespace mpt::cuda {

/// Lowers the functions of `kernels` to the LLVM and NVVM dialects, in modules inside it: one of functions that
/// 32-bit indices serve and one of the others, each with the globals. `sm` is the architecture's number, such as 90.
llvm::FailureOr<llvm::SmallVector<mlir::ModuleOp>> lowerKernels(mlir::ModuleOp kernels, unsigned sm);

/// Gives conversions of narrow floats, exponentials and quotients of f32 inside `kernels` the instructions of sm_`sm`
/// (PTX ISA, "Floating Point Instructions" and "cvt"). Errors, in units in the last place: exponentials 3, quotients 2
/// where only narrower types or sums see them, else 0.51, exact where the quotient is a number of the type.
void lowerFloatOps(mlir::Operation *kernels, unsigned sm);

/// Makes selections of 16-bit elements by comparisons of 16-bit floats inside `kernels`, also of widened ones,
/// selections of words, with masks for two elements each, by `set` of sm_`sm`; in 32 bits where that has none for the
/// type. Exact.
void packSelects(mlir::Operation *kernels, unsigned sm);

/// Makes selections of the larger 16-bit float inside `kernels` maxima, where a magnitude alone needs them: pooling's
/// largest magnitude does without the positions. Exact.
void takeMaxima(mlir::Operation *kernels);

/// Makes largest magnitudes of 16-bit floats inside `kernels` such ones of numbers with any sign, by
/// `max.xorsign.abs` where sm_`sm` has it, and drops signs once. Exact.
void packMagnitudes(mlir::Operation *kernels, unsigned sm);

/// Makes comparisons of positions with numbers of 64 bits ones of indices, in kernels whose indices have 32 bits.
/// Exact.
void narrowIndexCompares(mlir::Operation *kernels);

/// gpu.subgroup_mma_* on matrices of 16 x 16, FP16 or BF16 (`mpt.bf16`) with FP32 sums.
void populateMatrixPatterns(mlir::LLVMTypeConverter &types, mlir::RewritePatternSet &patterns);

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_TONVVM_H
