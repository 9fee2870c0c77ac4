// SPDX-License-Identifier: Apache-2.0
// Products and sums of FP32 in one instruction.
#ifndef MPT_LIB_LOWERING_GPU_CONTRACTION_H
#define MPT_LIB_LOWERING_GPU_CONTRACTION_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Makes x + p q and x - p q of FP32 one rounding instead of two, except for differences of two products and
/// differences with a square. Only the expression decides, not who else uses the product: kernels that make the same
/// value again make the same number.
void contractSums(mlir::func::FuncOp function);

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_CONTRACTION_H
