// SPDX-License-Identifier: Apache-2.0
// Properties of the processor that the CPU target generates code for.
#ifndef MPT_TARGET_CPU_PROCESSOR_H
#define MPT_TARGET_CPU_PROCESSOR_H

#include "../Machine.h"
#include "mpt/Lowering/Emission/KernelTarget.h"

namespace mpt::cpu {

/// Whether the runtime multiplies BF16 operands as they are there. False for unknown processors.
bool multipliesBf16(const target::Processor &processor);

/// Properties of `processor` that kernels may assume.
KernelTarget kernelTarget(const target::Processor &processor);

} // namespace mpt::cpu

#endif // MPT_TARGET_CPU_PROCESSOR_H
