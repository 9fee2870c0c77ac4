// SPDX-License-Identifier: Apache-2.0
// Access patterns of ops; apart from the other interfaces because only constant folding uses them.
#ifndef MPT_INTERFACES_EVALUATIONPATTERN_H
#define MPT_INTERFACES_EVALUATIONPATTERN_H

#include "mlir/IR/OpDefinition.h"

namespace mpt {

enum class AccessPattern : uint8_t {
  Elements,  ///< the pattern of an op without the interface: element by element, in linear time
  Pointwise, ///< a result element follows from the operands' elements at its position: uniform operands, uniform result
  Moves,     ///< every result element is an element of operand 0
  Windows    ///< a result element follows from many: windows, sums of products; the work exceeds linear time
};

} // namespace mpt

#include "mpt/Interfaces/EvaluationPattern.h.inc"

#endif // MPT_INTERFACES_EVALUATIONPATTERN_H
