// SPDX-License-Identifier: Apache-2.0
// Bytes of global memory that launches read and write.
#ifndef MPT_MEMORY_TRAFFIC_H
#define MPT_MEMORY_TRAFFIC_H

#include "mpt/Dialect/RT/RTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt::memory {

/// Bytes that are read and written; apart from them, bytes that kernels read only where a convolution's call has not
/// left the sums that they want.
struct Moved {
  int64_t bytes = 0, guarded = 0;
};

int64_t bytesOf(mlir::Value buffer);

/// By one of the kernels that a launch stands for.
Moved movedByPart(rt::LaunchOp launch, mlir::func::FuncOp part);

} // namespace mpt::memory

#endif // MPT_MEMORY_TRAFFIC_H
