// SPDX-License-Identifier: Apache-2.0
// Products of tensors whose dimensions are named by letters.
#ifndef MPT_LIB_IMPORT_EINSUM_H
#define MPT_LIB_IMPORT_EINSUM_H

#include "Binder.h"

namespace mpt {

llvm::LogicalResult importEinsum(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_EINSUM_H
