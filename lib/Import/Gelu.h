// SPDX-License-Identifier: Apache-2.0
// GELU in its forms.
#ifndef MPT_LIB_IMPORT_GELU_H
#define MPT_LIB_IMPORT_GELU_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importGelu(Binder &b);
/// x s(alpha x), s the sigmoid.
llvm::LogicalResult importQuickGelu(Binder &b);
/// GELU of the sum of x and a bias.
template <GeluForm form> llvm::LogicalResult importBiasGelu(Binder &b);
/// The first half of the sum's last dimension times the GELU of the second.
llvm::LogicalResult importBiasSplitGelu(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_GELU_H
