// SPDX-License-Identifier: Apache-2.0
// The interface of ops whose results are multiples of their operands; apart from the others because only the search for
// seeds asks for it.
#ifndef MPT_INTERFACES_LINEARITY_H
#define MPT_INTERFACES_LINEARITY_H

#include "mlir/IR/OpDefinition.h"

namespace mpt {
/// The effect on an op's float results when an operand is multiplied by s > 0.
enum class OperandScale {
  Fixed,  ///< nothing simple
  Shared, ///< they are multiplied by s where all shared operands are
  Factor, ///< they are multiplied by s
};
} // namespace mpt

#include "mpt/Interfaces/Linearity.h.inc"

#endif // MPT_INTERFACES_LINEARITY_H
