// SPDX-License-Identifier: Apache-2.0
// Rules of the operators that only ONNX Runtime's training artifacts have.
#ifndef MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H
#define MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H

#include "Binder.h"

namespace mpt {

/// All of them: of elementwise operators, and the two groups below.
void registerRuntimeGradients(RuleTable &table);
void registerLayerGradients(RuleTable &table);
void registerMovementGradients(RuleTable &table);

llvm::LogicalResult expectLike(Binder &b, unsigned i, mlir::Value like);
llvm::LogicalResult expectShape(Binder &b, unsigned i, llvm::ArrayRef<int64_t> shape);

} // namespace mpt

#endif // MPT_LIB_IMPORT_RUNTIMEGRADIENTS_H
