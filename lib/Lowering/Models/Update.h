// SPDX-License-Identifier: Apache-2.0
// The further optimizers' models, attached by the optimizer family.
#ifndef MPT_LIB_LOWERING_MODELS_UPDATE_H
#define MPT_LIB_LOWERING_MODELS_UPDATE_H

#include "mlir/IR/MLIRContext.h"

namespace mpt {

/// Attaches their decompositions, and OptimizerUpdate to all optimizers.
void attachUpdateModels(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_UPDATE_H
