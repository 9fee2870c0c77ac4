// SPDX-License-Identifier: Apache-2.0
// Everything a tool needs in its dialect registry.
#ifndef MPT_DRIVER_REGISTRATION_H
#define MPT_DRIVER_REGISTRATION_H

#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// Makes the targets of mpt/Target/Targets.def known. May be called again; other targets may be registered before or
/// after.
void registerTargets();

/// Registers targets, mpt's dialects, the upstream dialects they lower to, and every layer's external models.
void registerAll(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_DRIVER_REGISTRATION_H
