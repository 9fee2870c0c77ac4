// SPDX-License-Identifier: Apache-2.0
// The packed GEMM for AVX-512.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>
#include <immintrin.h>

#include "cpu/Transpose8.h"

namespace {

// Tiles take 24 of the 32 registers as accumulators.
constexpr int tileRows = 12;
constexpr int64_t depthMax = 384, rowsMax = 192;

} // namespace

#include "cpu/GemmVec512.h"

#include "cpu/GemmTypes.h"

#include "cpu/GemmPack.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmTask.h"

#include "cpu/GemmWindows.h"

namespace mpt::rt {
const GemmKernels gemmAvx512{"avx512",         MR,         NR,          runGemm,
                             gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays,
                             runWindows,       runLines,   packColumns};
} // namespace mpt::rt
