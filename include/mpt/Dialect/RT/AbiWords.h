// SPDX-License-Identifier: Apache-2.0
// The runtime's view of rt ops: the descriptors and flags of mpt-c/abi.h. Nothing else above the runtime writes them.
#ifndef MPT_DIALECT_RT_ABIWORDS_H
#define MPT_DIALECT_RT_ABIWORDS_H

#include "mpt-c/abi.h"
#include "mpt/Dialect/RT/RTDialect.h"

namespace mpt::rt {

/// The mpt_dtype of an element type; 0 for types that the runtime does not know.
int64_t runtimeType(mlir::Type element);

/// MPT_CONV_FORWARD, MPT_CONV_BACKWARD_DATA or MPT_CONV_BACKWARD_WEIGHTS.
int64_t runtimeKind(ConvKind kind);

/// The multiplication of `gemm`, with the MPT_GEMM_* flags of its epilogue and operands.
mpt_gemm_desc describe(GemmOp gemm);
/// The convolution of `conv`. `native`: see mpt_conv_workspace; counts only where all three tensors are BF16.
mpt_conv_desc describe(ConvOp conv, bool native);
mpt_attention_desc describe(AttentionOp attention);
mpt_attention_desc describe(AttentionGradientOp attention);
mpt_recurrence_desc describe(RecurrenceOp recurrence);

/// `gemm` needs mpt_cuda_gemm_chained: its epilogue reads or writes more than the plain call has arguments for.
bool isChained(GemmOp gemm);

} // namespace mpt::rt

#endif // MPT_DIALECT_RT_ABIWORDS_H
