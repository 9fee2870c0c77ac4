// SPDX-License-Identifier: Apache-2.0
// Cheap ops that readers rematerialize instead of reading them from memory.
#ifndef MPT_LIB_FUSION_CHEAPOPS_H
#define MPT_LIB_FUSION_CHEAPOPS_H

#include "mlir/IR/Block.h"

namespace mpt {

/// Gives every kernel that reads a cheap value a clone of the op that makes it: broadcasts, and cheap arithmetic on one
/// tensor that is no larger in bytes. A value that is written for a library call anyway is read.
void cloneCheapOps(mlir::Block &block);

} // namespace mpt

#endif // MPT_LIB_FUSION_CHEAPOPS_H
