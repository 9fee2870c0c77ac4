// SPDX-License-Identifier: Apache-2.0
// NVIDIA's numbers, by the data sheets and the CUDA C++ Programming Guide ("Compute Capabilities").
#include "Device.h"

using namespace mpt;

/// An H100 has an H200's multiprocessors.
static constexpr DeviceModel models[] = {
    {"sm_80", "A100", 108, 164 << 10}, {"sm_90", "H200", 132, 228 << 10}, {"sm_100", "B200", 148, 228 << 10}};

const DeviceDescription mpt::cuda::device = {
    .models = models,
    .multiprocessors = 132,
    .warpThreads = 32,
    .accessBytes = 16,
    .sectorBytes = 32,
    .rowThreads = 256,
    .sharedBytes = 48 << 10,
    .largestSharedBytes = 227 << 10, // from sm_90 on
    .residentBlocks = 32,
    .residentThreads = 2048,
    .registers = 65536,
    .registerUnit = 256,
    .keptSharedBytes = 1 << 10,
};
