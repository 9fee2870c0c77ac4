// SPDX-License-Identifier: Apache-2.0
// Attachment of the scale ops' decompositions.
#ifndef MPT_LIB_LOWERING_MODELS_SCALEDECOMPOSITIONS_H
#define MPT_LIB_LOWERING_MODELS_SCALEDECOMPOSITIONS_H

#include "mlir/IR/MLIRContext.h"

namespace mpt {

void attachScaleDecompositions(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_SCALEDECOMPOSITIONS_H
