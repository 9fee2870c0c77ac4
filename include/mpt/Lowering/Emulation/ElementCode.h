// SPDX-License-Identifier: Apache-2.0
// Elementwise ops in the interpreter, computed by the arithmetic that kernels for processors are emitted with.
#ifndef MPT_LOWERING_EMULATION_ELEMENTCODE_H
#define MPT_LOWERING_EMULATION_ELEMENTCODE_H

#include "mpt/Evaluation/Frame.h"

#include <memory>

namespace mpt {

/// Runs the code of one element, fused multiply-adds included, for every element of ops on FP32 or narrower floats.
std::unique_ptr<ElementCode> createElementCode();

} // namespace mpt

#endif // MPT_LOWERING_EMULATION_ELEMENTCODE_H
