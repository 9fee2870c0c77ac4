// Attachment of element forms, one function a family.
#ifndef MPT_LIB_LOWERING_LOWERINGMODELS_H
#define MPT_LIB_LOWERING_LOWERINGMODELS_H

#include "mpt/Lowering/ElementEmitter.h"

namespace mpt {

void attachElementwiseModels(mlir::MLIRContext *context);
void attachCastModels(mlir::MLIRContext *context);
void attachShapeModels(mlir::MLIRContext *context);
void attachReduceModels(mlir::MLIRContext *context);
void attachPoolModels(mlir::MLIRContext *context);
void attachScatterModels(mlir::MLIRContext *context);
/// Decomposable for losses and optimizers, and for training arithmetic.
void attachDecompositions(mlir::MLIRContext *context);
void attachTrainDecompositions(mlir::MLIRContext *context);

/// Element `at` of the integer tensor `indices` as a position within `extent`; negative ones count from the end.
IndexExpr indirectIndex(ElementEmitter &emitter, mlir::Value indices, llvm::ArrayRef<IndexExpr> at, int64_t extent);

} // namespace mpt

#endif // MPT_LIB_LOWERING_LOWERINGMODELS_H
