// SPDX-License-Identifier: Apache-2.0
// Which states a saved model file takes its tensors from.
#ifndef MPT_LIB_DRIVER_SAVEDTENSORS_H
#define MPT_LIB_DRIVER_SAVEDTENSORS_H

#include "mpt/Driver/CompileOptions.h"
#include "mpt/Import/Template.h"

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// The tensors of the file at `sites` that states of the module have.
std::vector<SavedTensor> savedTensors(mlir::ModuleOp module, const TensorSites &sites);

/// Writes the model file of `options` with the values of its saved state.
llvm::Error saveState(const CompileOptions &options, mlir::MLIRContext *context);

} // namespace mpt

#endif // MPT_LIB_DRIVER_SAVEDTENSORS_H
