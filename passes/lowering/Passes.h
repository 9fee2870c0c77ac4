// SPDX-License-Identifier: Apache-2.0
// Passes of the lowering stage: constructors and registration.
#ifndef MPT_PASSES_LOWERING_PASSES_H
#define MPT_PASSES_LOWERING_PASSES_H

#include "mlir/Pass/Pass.h"

namespace mpt::target {
class Target;
} // namespace mpt::target

namespace mpt {

#define GEN_PASS_DECL
#include "passes/lowering/Passes.h.inc"
#define GEN_PASS_REGISTRATION
#include "passes/lowering/Passes.h.inc"

/// --lowering-emit-kernels for `target`; for the default one if null.
std::unique_ptr<mlir::Pass> createEmitKernels(std::shared_ptr<const target::Target> target);

} // namespace mpt

#endif // MPT_PASSES_LOWERING_PASSES_H
