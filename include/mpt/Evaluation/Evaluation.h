// SPDX-License-Identifier: Apache-2.0
// Registration of the rules by which each op is interpreted.
#ifndef MPT_EVALUATION_EVALUATION_H
#define MPT_EVALUATION_EVALUATION_H

#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// Attaches the Interpretable model of every core, train and rt op on tensors when its dialect is loaded.
void registerEvaluationModels(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_EVALUATION_EVALUATION_H
