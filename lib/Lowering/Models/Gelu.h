// SPDX-License-Identifier: Apache-2.0
// GELU in the primitives that it decomposes into.
#ifndef MPT_LIB_LOWERING_MODELS_GELU_H
#define MPT_LIB_LOWERING_MODELS_GELU_H

#include "mpt/Dialect/MPT/MPTDialect.h"

#include <optional>

namespace mpt {

/// The operand of a matched GELU, and its form.
struct GeluMatch {
  mlir::Value x;
  GeluForm form;
};

/// `op` as the last operation of a decomposed GELU (GeluOp::decompose) of which 8 bits and largest magnitudes are all
/// that is left in the end.
std::optional<GeluMatch> matchEightBitGelu(MulOp op);

} // namespace mpt

#endif // MPT_LIB_LOWERING_MODELS_GELU_H
