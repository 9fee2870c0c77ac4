// SPDX-License-Identifier: Apache-2.0
// Interfaces of core ops for library calls: models of LayoutPreference for all ops of the library stage.
#ifndef MPT_LIBRARY_LIBRARY_H
#define MPT_LIBRARY_LIBRARY_H

#include "mlir/IR/DialectRegistry.h"

namespace mpt {

/// Attaches the models of this layer to the dialects that `registry` loads.
void registerLibraryModels(mlir::DialectRegistry &registry);

} // namespace mpt

#endif // MPT_LIBRARY_LIBRARY_H
