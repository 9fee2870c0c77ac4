// SPDX-License-Identifier: Apache-2.0
// The processor that kernels are generated for, and the types they compute in.
#ifndef MPT_LOWERING_EMISSION_KERNELTARGET_H
#define MPT_LOWERING_EMISSION_KERNELTARGET_H

#include "mlir/IR/Types.h"

namespace mpt {

/// Properties of the processor that code generation may assume.
struct KernelTarget {
  unsigned vectorBits = 256;
  bool fma = true;
  bool halves = true; ///< converts between f32 and f16 in one instruction
  /// Rounds f32 to bf16 in one instruction, subnormal numbers too (AVX-512's makes zeros of them).
  bool bfloats = false;
  /// Conversions of narrow floats, exponentials and quotients of f32 stay one op each: expandFloatOps, or the code
  /// generator of a device that has instructions for them, expands them later.
  bool keepsFloatOps = false;
  int64_t warpThreads = 1; ///< a device's threads that exchange values without memory
  /// FP32 sums are exact up to the last rounding, so that they have no order.
  bool exactSums = false;
  /// The processor this process runs on.
  static KernelTarget host();
  unsigned lanes() const { return vectorBits / 16; } ///< two registers of f32
};

/// The type in which elements of `type` are computed: FP32 for narrower floats, a signless
/// integer of 32 or 64 bits for unsigned ones (which is not negative then, below 2^63), else itself.
mlir::Type computeType(mlir::Type type);

} // namespace mpt

#endif // MPT_LOWERING_EMISSION_KERNELTARGET_H
