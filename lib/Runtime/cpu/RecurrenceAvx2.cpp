// SPDX-License-Identifier: Apache-2.0
// Recurrences in FP32, avx2.
#include "cpu/Recurrence.h"

namespace {
constexpr int W = 8, tileRows = 6;
} // namespace

#include "cpu/RecurrenceTile.h"

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {
const RecurrenceKernels recurrenceAvx2{
    "avx2", NR, false, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};
} // namespace mpt::rt
