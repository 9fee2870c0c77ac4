// SPDX-License-Identifier: Apache-2.0
// Numeric classes of ops, the vocabulary of the precision passes.
#ifndef MPT_INTERFACES_NUMERICCLASS_H
#define MPT_INTERFACES_NUMERICCLASS_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>

namespace mpt {

enum class NumericClass : uint8_t {
  Contraction,    ///< sums of products with a wide accumulator: safe and worth narrowing
  Reduction,      ///< long sums or extrema; result grows with length, accumulator must be wide
  RangeExpanding, ///< exp, pow and alike: small inputs make large outputs
  Neutral,        ///< ordinary arithmetic; follows its neighbours
  Movement,       ///< copies, comparisons and selections: exact in any type
  Pinned          ///< always FP32 or wider: losses, optimizers, scale arithmetic
};

/// "contraction", "reduction", "range-expanding", "neutral", "movement" or "pinned".
llvm::StringRef stringifyNumericClass(NumericClass value);
std::optional<NumericClass> symbolizeNumericClass(llvm::StringRef name);

} // namespace mpt

#endif // MPT_INTERFACES_NUMERICCLASS_H
