// SPDX-License-Identifier: Apache-2.0
// Trigonometric and hyperbolic functions that core has no op for.
#ifndef MPT_LIB_IMPORT_TRIGONOMETRY_H
#define MPT_LIB_IMPORT_TRIGONOMETRY_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importTan(Binder &b);
llvm::LogicalResult importAtan(Binder &b);
llvm::LogicalResult importAsin(Binder &b);
llvm::LogicalResult importAcos(Binder &b);
llvm::LogicalResult importCosh(Binder &b);
llvm::LogicalResult importSinh(Binder &b);
llvm::LogicalResult importAsinh(Binder &b);
llvm::LogicalResult importAcosh(Binder &b);
llvm::LogicalResult importAtanh(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_TRIGONOMETRY_H
