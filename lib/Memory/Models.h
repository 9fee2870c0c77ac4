// SPDX-License-Identifier: Apache-2.0
// One function a family, which attaches its ops' forms on buffers; called by Registration.cpp.
#ifndef MPT_LIB_MEMORY_MODELS_H
#define MPT_LIB_MEMORY_MODELS_H

#include "mlir/IR/MLIRContext.h"

namespace mpt::memory {

void attachShapeModels(mlir::MLIRContext *context);
void attachStateModels(mlir::MLIRContext *context);
void attachReturnModel(mlir::MLIRContext *context);
void attachConstantModel(mlir::MLIRContext *context);
void attachFusionModel(mlir::MLIRContext *context);
void attachGemmModel(mlir::MLIRContext *context);
void attachConvModel(mlir::MLIRContext *context);
void attachAttentionModels(mlir::MLIRContext *context);
void attachRecurrentModels(mlir::MLIRContext *context);
void attachAlignmentModels(mlir::MLIRContext *context);

} // namespace mpt::memory

#endif // MPT_LIB_MEMORY_MODELS_H
