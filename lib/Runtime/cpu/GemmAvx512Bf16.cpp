// SPDX-License-Identifier: Apache-2.0
// The packed GEMM of 8-bit operands for processors that multiply BF16: pairs of products, summed in FP32.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>
#include <immintrin.h>

#include "cpu/GemmVec512.h"

#include "cpu/GemmTypes.h"

#include "cpu/GemmPackPairs.h"

#include "cpu/GemmTask.h"

namespace mpt::rt {
const GemmKernels gemmAvx512Bf16{"avx512-bf16",    MR,         NR,          runGemm,
                                 gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays};
} // namespace mpt::rt
