// SPDX-License-Identifier: Apache-2.0
// Recurrences in FP32, portable.
#include "cpu/Recurrence.h"

namespace {
constexpr int W = 4, tileRows = 4;
} // namespace

#include "cpu/RecurrenceTile.h"

#include "cpu/RecurrenceSteps.h"

namespace mpt::rt {
const RecurrenceKernels recurrencePortable{
    "portable", NR, false, Tile::depthUnit, packBlocks, runBlocks<ForwardStep>, runBlocks<BackwardStep>};
} // namespace mpt::rt
