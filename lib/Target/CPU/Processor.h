// SPDX-License-Identifier: Apache-2.0
// What the CPU target asks about the processor that code is generated for.
#ifndef MPT_TARGET_CPU_PROCESSOR_H
#define MPT_TARGET_CPU_PROCESSOR_H

#include "llvm/ADT/StringRef.h"

namespace mpt::cpu {

/// Whether `cpu` ("native" for this machine) has an LLVM feature such as "avx512bf16". False for unknown processors.
bool hasFeature(llvm::StringRef cpu, llvm::StringRef feature);

/// Width in bits of the vectors that kernels for `cpu` should use: 512, 256 or 128.
unsigned vectorBits(llvm::StringRef cpu);

} // namespace mpt::cpu

#endif // MPT_TARGET_CPU_PROCESSOR_H
