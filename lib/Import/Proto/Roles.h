// SPDX-License-Identifier: Apache-2.0
// Which initializers are parameters, statistics or constants.
#ifndef MPT_LIB_IMPORT_PROTO_ROLES_H
#define MPT_LIB_IMPORT_PROTO_ROLES_H

#include "JointRoles.h"
#include "mpt/Import/Import.h"

namespace mpt {

/// Sets the role of every train.state by the file's declaration or else the use of its value, then by the options and
/// by the `roles` that outputs have in a joint graph; small constants become mpt.constant.
llvm::LogicalResult assignRoles(mlir::ModuleOp module, const ImportOptions &options, const proto::JointRoles &roles,
                                const proto::DeclaredParameters &declared = {},
                                const llvm::StringMap<std::string> &separated = {});

/// Names that exporters and optimizers give to values that they lift or fold: names of operators, with a number.
bool isGeneratedName(llvm::StringRef name);

/// The last part of a name names arithmetic in a module's code, with a number.
bool isMadeInCode(llvm::StringRef name);

/// Customary names of statistics, rotary tables, schedules of noise and masks.
bool isBufferName(llvm::StringRef name);

/// Of a module whose file declares its parameters: freezes the ones that the options name.
llvm::LogicalResult freezeParameters(mlir::ModuleOp module, const ImportOptions &options);

} // namespace mpt

#endif // MPT_LIB_IMPORT_PROTO_ROLES_H
