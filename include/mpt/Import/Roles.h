// SPDX-License-Identifier: Apache-2.0
// Which tensors of a file are parameters, statistics or constants.
#ifndef MPT_IMPORT_ROLES_H
#define MPT_IMPORT_ROLES_H

#include "mlir/IR/BuiltinOps.h"

namespace mpt {

/// Regular expressions for whole names of tensors.
struct RoleOptions {
  llvm::ArrayRef<std::string> train;  ///< of all tensors that train, if any are given
  llvm::ArrayRef<std::string> freeze; ///< of parameters without gradients
};

/// Sets the role of every train.state by the file's declaration (`onnx.declared`) or else the use of its value, then by
/// the options and the outputs of a joint graph (`onnx.training`); small constants become mpt.constant. The manifest
/// says which tensors are held and why, and which ones the file has as one (`onnx.separated_from`). An expression that
/// matches nothing is an error.
llvm::LogicalResult assignRoles(mlir::ModuleOp module, const RoleOptions &options = {});

/// Of a module whose file states the roles of its tensors: freezes the parameters that the expressions name.
llvm::LogicalResult freezeParameters(mlir::ModuleOp module, llvm::ArrayRef<std::string> expressions);

} // namespace mpt

#endif // MPT_IMPORT_ROLES_H
