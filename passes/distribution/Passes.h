// SPDX-License-Identifier: Apache-2.0
// Passes of the distribution stage: constructors and registration.
#ifndef MPT_PASSES_DISTRIBUTION_PASSES_H
#define MPT_PASSES_DISTRIBUTION_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mpt {

#define GEN_PASS_DECL
#include "passes/distribution/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/distribution/Passes.h.inc"

} // namespace mpt

#endif // MPT_PASSES_DISTRIBUTION_PASSES_H
