// SPDX-License-Identifier: Apache-2.0
// Attachment of the scale ops' rules.
#ifndef MPT_LIB_REFERENCE_SCALES_H
#define MPT_LIB_REFERENCE_SCALES_H

#include "mlir/IR/MLIRContext.h"

namespace mpt {

void attachScaleRules(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_REFERENCE_SCALES_H
