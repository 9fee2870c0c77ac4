// SPDX-License-Identifier: Apache-2.0
// Attachment of the check ops' rules.
#ifndef MPT_LIB_REFERENCE_CHECKRULES_H
#define MPT_LIB_REFERENCE_CHECKRULES_H

#include "mlir/IR/MLIRContext.h"

namespace mpt {

void attachCheckRules(mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_REFERENCE_CHECKRULES_H
