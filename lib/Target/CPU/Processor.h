// SPDX-License-Identifier: Apache-2.0
// Features of the processor that the CPU target generates code for.
#ifndef MPT_TARGET_CPU_PROCESSOR_H
#define MPT_TARGET_CPU_PROCESSOR_H

#include "mpt/Lowering/Emission/KernelTarget.h"

#include "llvm/ADT/StringRef.h"

namespace mpt::cpu {

/// Whether `cpu` ("native" for this machine) has an LLVM feature such as "avx512bf16". False for unknown processors.
bool hasFeature(llvm::StringRef cpu, llvm::StringRef feature);

/// Properties of `cpu` that kernels may assume.
KernelTarget kernelTarget(llvm::StringRef cpu);

} // namespace mpt::cpu

#endif // MPT_TARGET_CPU_PROCESSOR_H
