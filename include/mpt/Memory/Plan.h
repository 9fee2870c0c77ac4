// SPDX-License-Identifier: Apache-2.0
// The arena: offsets of scratch buffers from their lifetimes.
#ifndef MPT_MEMORY_PLAN_H
#define MPT_MEMORY_PLAN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace mpt::memory {

inline constexpr int64_t kArenaAlignment = 64;

/// Lets kernels write over inputs that nobody reads later, then gives every rt.alloc of `function` an offset so that
/// buffers that live at one time do not overlap. `inPlace` off keeps every buffer apart from its neighbours.
void plan(mlir::func::FuncOp function, bool inPlace = true);

/// Checks a plan: offsets aligned and inside the arena, no two buffers that live at one time overlap.
llvm::LogicalResult verifyPlan(mlir::func::FuncOp function);

} // namespace mpt::memory

#endif // MPT_MEMORY_PLAN_H
