// SPDX-License-Identifier: Apache-2.0
// The counter-based generator (Philox 4x32-10: Salmon et al., SC 2011) as a model-local function of standard ops.
#ifndef MPT_LIB_EXPORT_PHILOX_H
#define MPT_LIB_EXPORT_PHILOX_H

#include "Writer.h"

namespace mpt {

/// One word (i64, below 2^32) for each element of `type`.
OnnxValue randomWords(OnnxWriter &w, mlir::Value key, int64_t stream, mlir::RankedTensorType type);

} // namespace mpt

#endif // MPT_LIB_EXPORT_PHILOX_H
