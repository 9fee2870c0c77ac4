// SPDX-License-Identifier: Apache-2.0
// Rows of a batch in reverse, each within its own length.
#ifndef MPT_LIB_IMPORT_REVERSESEQUENCE_H
#define MPT_LIB_IMPORT_REVERSESEQUENCE_H

#include "Binder.h"

namespace mpt {
/// The first lengths[i] samples of each row of the batch in reverse, the others as they are: a gather at positions that
/// are computed from the lengths. `batch` and `time` are dimensions of `x`.
mlir::Value reverseSequence(Binder &b, mlir::Value x, mlir::Value lengths, int64_t batch, int64_t time);
} // namespace mpt

#endif // MPT_LIB_IMPORT_REVERSESEQUENCE_H
