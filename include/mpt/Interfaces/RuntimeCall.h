// SPDX-License-Identifier: Apache-2.0
// Kinds of work that calls of the runtime do.
#ifndef MPT_INTERFACES_RUNTIMECALL_H
#define MPT_INTERFACES_RUNTIMECALL_H

#include "mlir/IR/OpDefinition.h"

namespace mpt {

/// `Kernel`: launch of a generated kernel; `Gemm`, `Convolution`, `Attention`: call of a library; `Recurrence`: all
/// steps of a layer, by a library or by a loop of other calls; `Copy` and `Fill`: of bytes.
enum class CallKind { Kernel, Gemm, Convolution, Attention, Recurrence, Copy, Fill };

/// A library does the work.
inline bool isLibraryCall(CallKind kind) {
  return kind == CallKind::Gemm || kind == CallKind::Convolution || kind == CallKind::Attention ||
         kind == CallKind::Recurrence;
}

} // namespace mpt

#include "mpt/Interfaces/RuntimeCall.h.inc"

#endif // MPT_INTERFACES_RUNTIMECALL_H
