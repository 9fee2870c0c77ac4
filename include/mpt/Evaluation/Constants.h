// SPDX-License-Identifier: Apache-2.0
// Values that follow from constants, computed by the ops' own rules.
#ifndef MPT_EVALUATION_CONSTANTS_H
#define MPT_EVALUATION_CONSTANTS_H

#include "mpt/Evaluation/Tensor.h"

#include <optional>

namespace mpt {

/// The elements of `value` if nothing but constants leads to it, through at most 64 ops none of whose results has more
/// than `mostElements` elements. Nothing otherwise, or where a rule refuses its operands; no diagnostic is emitted.
std::optional<Tensor> evaluateConstant(mlir::Value value, int64_t mostElements);

} // namespace mpt

#endif // MPT_EVALUATION_CONSTANTS_H
