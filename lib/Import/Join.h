// SPDX-License-Identifier: Apache-2.0
// Tensors joined along an axis, which operators of the standard and of ONNX Runtime are.
#ifndef MPT_LIB_IMPORT_JOIN_H
#define MPT_LIB_IMPORT_JOIN_H

#include "Binder.h"

namespace mpt {

/// Sets result 0 to all operands joined along attribute `axis`, which is returned; fails where another extent differs.
llvm::FailureOr<int64_t> joinOperands(Binder &b);

} // namespace mpt

#endif // MPT_LIB_IMPORT_JOIN_H
