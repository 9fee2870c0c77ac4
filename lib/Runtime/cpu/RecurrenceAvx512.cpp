// SPDX-License-Identifier: Apache-2.0
// Recurrences in FP32, avx512.
#include "cpu/Recurrence.h"

namespace {
constexpr int W = 16, tileRows = 12;
} // namespace

#include "cpu/RecurrenceTile.h"

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {
const RecurrenceKernels recurrenceAvx512{
    "avx512", NR, false, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};
} // namespace mpt::rt
