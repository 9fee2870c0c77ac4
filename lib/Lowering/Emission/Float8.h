// SPDX-License-Identifier: Apache-2.0
// 8-bit floats (OCP 8-bit floating point specification) in generated code: f32 values in registers, bytes in memory.
#ifndef MPT_LIB_LOWERING_EMISSION_FLOAT8_H
#define MPT_LIB_LOWERING_EMISSION_FLOAT8_H

#include "mpt/Lowering/Emission/ValueBuilder.h"

namespace mpt {

/// The f32 of an 8-bit float, or of each lane.
mlir::Value widenFloat8(ValueBuilder &e, mlir::Value value);
/// An f32 rounded to `type`, to nearest even, still as f32; beyond the range infinity, or NaN where there is none.
mlir::Value roundFloat8(ValueBuilder &e, mlir::Value value, mlir::Type type);
/// The 8-bit float of an f32 that is one of `type`.
mlir::Value narrowFloat8(ValueBuilder &e, mlir::Value value, mlir::Type type);

} // namespace mpt

#endif // MPT_LIB_LOWERING_EMISSION_FLOAT8_H
