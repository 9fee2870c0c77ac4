// Attachment of element forms, one function a family.
#ifndef MPT_LIB_LOWERING_LOWERINGMODELS_H
#define MPT_LIB_LOWERING_LOWERINGMODELS_H

#include "mpt/Lowering/ElementEmitter.h"

namespace mpt {

void attachElementwiseModels(mlir::MLIRContext *context);
void attachCastModels(mlir::MLIRContext *context);
void attachShapeModels(mlir::MLIRContext *context);
void attachReduceModels(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_LOWERING_LOWERINGMODELS_H
