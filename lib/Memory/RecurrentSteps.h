// SPDX-License-Identifier: Apache-2.0
// Recurrences as loops over their steps, for devices: GEMMs of the runtime's and kernels of one launch a step.
#ifndef MPT_LIB_MEMORY_RECURRENTSTEPS_H
#define MPT_LIB_MEMORY_RECURRENTSTEPS_H

#include "mpt/Memory/Bufferization.h"

namespace mpt::memory {

void loopOverSteps(RecurrenceOp op, BufferizationState &state);
void loopOverSteps(RecurrenceBackwardOp op, BufferizationState &state);

} // namespace mpt::memory

#endif // MPT_LIB_MEMORY_RECURRENTSTEPS_H
