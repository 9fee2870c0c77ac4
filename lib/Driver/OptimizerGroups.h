// SPDX-License-Identifier: Apache-2.0
// The optimizers of a step with all their settings, for readers of the manifest.
#ifndef MPT_LIB_DRIVER_OPTIMIZERGROUPS_H
#define MPT_LIB_DRIVER_OPTIMIZERGROUPS_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// The manifest's "optimizer" with "groups": a dictionary of settings for each optimizer of its "spec", with the names
/// of the "parameters" that it updates, in the module's order. An optimizer without a spec stays as it is.
mlir::Attribute withGroups(mlir::ModuleOp module, mlir::Attribute optimizer);

} // namespace mpt

#endif // MPT_LIB_DRIVER_OPTIMIZERGROUPS_H
