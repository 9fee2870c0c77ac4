// SPDX-License-Identifier: Apache-2.0
// Bufferization of ops on tensors.
#ifndef MPT_INTERFACES_BUFFERIZABLE_H
#define MPT_INTERFACES_BUFFERIZABLE_H

#include "mpt/Interfaces/StridedView.h"

namespace mpt {

namespace memory {
class BufferizationState;
} // namespace memory

/// Where an op can write its results; each enumerator allows the places of the earlier ones too.
enum class WritesTo {
  Own,          ///< buffers of their own, or the operand's
  Outputs,      ///< memory that nothing else reads meanwhile; before the op itself runs, so no state
  States,       ///< a state whose old value nobody reads any more
  StatesInPlace ///< a state whose old value the op itself reads; if its kernel reads each index before writing it
};

/// Kinds of places that ops have for their operands, the one that saves most first.
enum class PlaceKind { State, Output, Part };

} // namespace mpt

#include "mpt/Interfaces/Bufferizable.h.inc"

#endif // MPT_INTERFACES_BUFFERIZABLE_H
