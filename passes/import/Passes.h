// SPDX-License-Identifier: Apache-2.0
// Passes of the import stage: constructors and registration.
#ifndef MPT_PASSES_IMPORT_PASSES_H
#define MPT_PASSES_IMPORT_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mpt {

#define GEN_PASS_DECL
#include "passes/import/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/import/Passes.h.inc"

} // namespace mpt

#endif // MPT_PASSES_IMPORT_PASSES_H
