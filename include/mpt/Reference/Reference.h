// SPDX-License-Identifier: Apache-2.0
// Registration of the reference interpreter's rules.
#ifndef MPT_REFERENCE_REFERENCE_H
#define MPT_REFERENCE_REFERENCE_H

#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// Attaches the Interpretable model of every core, train, rt and check op when its dialect is loaded.
void registerReferenceModels(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_REFERENCE_REFERENCE_H
