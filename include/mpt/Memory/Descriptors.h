// SPDX-License-Identifier: Apache-2.0
// The runtime's view of rt ops: the descriptors of mpt-c/abi.h, filled from buffer types and attributes.
#ifndef MPT_MEMORY_DESCRIPTORS_H
#define MPT_MEMORY_DESCRIPTORS_H

#include "mpt-c/abi.h"
#include "mpt/Dialect/RT/RTDialect.h"

namespace mpt::memory {

/// The mpt_dtype of an element type; 0 for types that the runtime does not know.
int64_t runtimeType(mlir::Type element);

mpt_gemm_desc describe(rt::GemmOp gemm);
/// `native`: see mpt_conv_workspace; counts only where all three tensors are BF16.
mpt_attention_desc describe(rt::AttentionOp attention);
mpt_attention_desc describe(rt::AttentionGradientOp attention);
mpt_conv_desc describe(rt::ConvOp conv, bool native);

} // namespace mpt::memory

#endif // MPT_MEMORY_DESCRIPTORS_H
