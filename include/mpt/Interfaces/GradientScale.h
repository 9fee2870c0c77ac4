// SPDX-License-Identifier: Apache-2.0
// The interface of ops that change loss scales; apart from the others because only their verification asks for it.
#ifndef MPT_INTERFACES_GRADIENTSCALE_H
#define MPT_INTERFACES_GRADIENTSCALE_H

#include "mlir/IR/OpDefinition.h"
#include <optional>

namespace mpt {
/// The loss scales that a value carries, as the IR values that hold them.
using GradientScales = llvm::SmallVector<mlir::Value, 1>;
/// Nothing for a value that would fit any scale.
using GradientScalesOf = llvm::function_ref<std::optional<GradientScales>(mlir::Value)>;
} // namespace mpt

#include "mpt/Interfaces/GradientScale.h.inc"

#endif // MPT_INTERFACES_GRADIENTSCALE_H
