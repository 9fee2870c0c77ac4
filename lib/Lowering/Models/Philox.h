// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers.
#ifndef MPT_LIB_LOWERING_MODELS_PHILOX_H
#define MPT_LIB_LOWERING_MODELS_PHILOX_H

#include "mpt/Lowering/Emission/ElementEmitter.h"

namespace mpt {

/// Philox 4x32-10 (Salmon et al., SC 2011): the word of number `at`, row by row in `op`'s result, in stream `stream`
/// under `key` (seed, step). i32, a vector where `at` differs between lanes. The upper half of the step word is a part
/// of the stream (see fusion-key-streams).
mlir::Value randomWord(ElementEmitter &e, mlir::Value key, int64_t stream, mlir::Operation *op,
                       llvm::ArrayRef<IndexExpr> at);

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_PHILOX_H
