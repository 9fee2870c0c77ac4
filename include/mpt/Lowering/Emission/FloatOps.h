// SPDX-License-Identifier: Apache-2.0
// Operations on floats that emission leaves whole (KernelTarget::keepsFloatOps), expanded to integer arithmetic and
// polynomials.
#ifndef MPT_LOWERING_EMISSION_FLOATOPS_H
#define MPT_LOWERING_EMISSION_FLOATOPS_H

#include "mpt/Lowering/Emission/KernelTarget.h"

#include "mlir/IR/Operation.h"

namespace mpt {

/// Makes comparisons, extremes, magnitudes and changes of sign of 16-bit floats inside `root` ops of FP32: the same
/// numbers. `target` has no instructions for them.
void widenExactOps(mlir::Operation *root, const KernelTarget &target);

/// Rounds FP32 values that are narrowed to 8 bits inside `root` and widened again, which then never become bytes.
void foldFloat8RoundTrips(mlir::Operation *root, const KernelTarget &target);

/// Expands arith.extf and arith.truncf of BF16 and of 8-bit floats (OCP 8-bit floating point specification), and
/// math.exp of f32, inside `root`. Rounding is to nearest even; beyond the range lies infinity, or NaN where the type
/// has none. `target` keeps no such op.
void expandFloatOps(mlir::Operation *root, const KernelTarget &target);

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_FLOATOPS_H
