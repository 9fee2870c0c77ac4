// SPDX-License-Identifier: Apache-2.0
// The packed GEMM of operands that BF16 has, for processors with matrix tiles (AMX).
#include "cpu/Amx.h"
#include "cpu/Gemm.h"

#include "core/Float.h"

#include <cmath>
#include <immintrin.h>

namespace {

constexpr int tileRows = 32;
constexpr int64_t depthMax = 192, rowsMax = 384, depthUnit = 16;

} // namespace

#include "cpu/GemmVec512.h"

#include "cpu/GemmTypes.h"

namespace {

/// Tiles are fast enough to wait for the second cache: rather fewer rows and columns than sums of several blocks, which
/// the third one would hold.
constexpr int64_t deepest = 4 * depthMax;
/// Packed A lies as tiles read it, so that the processor fetches ahead: two tiles of 16 rows, and the next along k.
inline int64_t rowPitch(int64_t lanes) { return lanes; }
inline int64_t placeOf(int64_t row, int64_t lane, int64_t lanes) {
  return row / MR * MR * lanes + lane / depthUnit * depthUnit * MR + row % MR * depthUnit;
}

} // namespace

#include "cpu/GemmPackPairs.h"

#include "cpu/GemmTileAmx.h"

#include "cpu/GemmTask.h"

namespace {

void runInTiles(const GemmTask &task, float *scratch) {
  configureTiles(16, 16);
  runGemm(task, scratch);
  _tile_release(); // a thread that switches would have to save them
}

} // namespace

namespace mpt::rt {
const GemmKernels gemmAmx{"amx", MR, NR, runInTiles, gemmScratchBytes, widenArray, narrowArray, multiplyAddArrays};
} // namespace mpt::rt
