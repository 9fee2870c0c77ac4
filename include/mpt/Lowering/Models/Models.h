// SPDX-License-Identifier: Apache-2.0
// Attachment of loop lowerings, one function a family, and declarations that kernels and reductions share.
#ifndef MPT_LOWERING_MODELS_MODELS_H
#define MPT_LOWERING_MODELS_MODELS_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mlir {
class DialectRegistry;
} // namespace mlir

namespace mpt {

/// Attaches LoopLowering, FusionRole and Decomposable to the ops of the core and training dialects.
void registerLoopLoweringModels(mlir::DialectRegistry &registry);

// ---- one function a family: lib/Lowering/Models/<Family>.cpp
void attachElementwiseModels(mlir::MLIRContext *context);
void attachCastModels(mlir::MLIRContext *context);
void attachRandomModels(mlir::MLIRContext *context);
void attachShapeModels(mlir::MLIRContext *context);
void attachGatherModels(mlir::MLIRContext *context);
void attachScatterModels(mlir::MLIRContext *context);
void attachReduceModels(mlir::MLIRContext *context);
void attachPoolModels(mlir::MLIRContext *context);
void attachResizeModels(mlir::MLIRContext *context);
void attachLossModels(mlir::MLIRContext *context);
void attachOptimizerModels(mlir::MLIRContext *context);
void attachTrainingModels(mlir::MLIRContext *context);
void attachTrainModels(mlir::MLIRContext *context);
void attachScaleModels(mlir::MLIRContext *context);

/// Element `at` of the integer tensor `indices` as a position within `extent`; negative ones count from the end.
IndexExpr indirectIndex(ElementEmitter &emitter, mlir::Value indices, llvm::ArrayRef<IndexExpr> at, int64_t extent);

/// A visitor of each element that the loops of a group of reductions come by: statistics of a value are gathered where
/// it is stored.
struct Alongside {
  llvm::SmallVector<ReduceOp> group; ///< all of one walk; its loops do the visits
  llvm::function_ref<void(ElementEmitter::Indices)> visit;
  llvm::SmallVector<llvm::SmallVector<int64_t>> walk; ///< how the loops go; empty: as ElementEmitter::walk says
  unsigned lanes = 1;                                 ///< elements of the last of them that are visited together
};

} // namespace mpt

#endif // MPT_LOWERING_MODELS_MODELS_H
