// SPDX-License-Identifier: Apache-2.0
// The packed GEMM of operands that BF16 has, for processors that multiply BF16: pairs of products, summed in FP32.
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>
#include <immintrin.h>

namespace {

// Tiles take 24 of the 32 registers as accumulators.
constexpr int tileRows = 12;
constexpr int64_t depthMax = 384, rowsMax = 192, depthUnit = 1;

} // namespace

#include "cpu/GemmVec512.h"

#include "cpu/GemmTypes.h"

namespace {

/// Rather fewer rows and columns than sums of several blocks, which the third cache would hold.
constexpr int64_t deepest = 4 * depthMax;
inline int64_t rowPitch(int64_t) { return lead; }
/// Parts of a deep block one after the other.
inline int64_t placeOf(int64_t row, int64_t lane, int64_t lanes) {
  return (lane / depthMax * blockRows(lanes) + row) * lead + lane % depthMax;
}

} // namespace

#include "cpu/GemmPackPairs.h"

#include "cpu/GemmTile.h"

#include "cpu/GemmTask.h"

namespace mpt::rt {
const GemmKernels gemmAvx512Bf16{"avx512-bf16",    MR,         NR,          runGemm,
                                 gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays};
} // namespace mpt::rt
