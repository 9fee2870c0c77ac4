// SPDX-License-Identifier: Apache-2.0
// Which buffers an op reads and writes, as its memory effects say.
#ifndef MPT_MEMORY_EFFECTS_H
#define MPT_MEMORY_EFFECTS_H

#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mpt::memory {

/// The values on which `op` has an effect of kind `Effect`, in the order of its operands.
template <typename Effect> llvm::SmallVector<mlir::Value> affectedBy(mlir::Operation *op) {
  llvm::SmallVector<mlir::MemoryEffects::EffectInstance> effects;
  if (auto interface = llvm::dyn_cast<mlir::MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  llvm::SmallVector<mlir::Value> values;
  for (const mlir::MemoryEffects::EffectInstance &effect : effects)
    if (llvm::isa<Effect>(effect.getEffect()) && effect.getValue())
      values.push_back(effect.getValue());
  return values;
}

inline llvm::SmallVector<mlir::Value> readBy(mlir::Operation *op) { return affectedBy<mlir::MemoryEffects::Read>(op); }
inline llvm::SmallVector<mlir::Value> writtenBy(mlir::Operation *op) {
  return affectedBy<mlir::MemoryEffects::Write>(op);
}

} // namespace mpt::memory

#endif // MPT_MEMORY_EFFECTS_H
