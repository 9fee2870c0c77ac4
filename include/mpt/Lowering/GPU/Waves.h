// SPDX-License-Identifier: Apache-2.0
// Waves of blocks: what a grid costs while nobody knows which device runs it, and how many of its blocks share a
// multiprocessor; and how full they are where both are known. scripts/sass-budget.py has the latter too, and a test
// (test_kernel_report.py) that both agree.
#ifndef MPT_LOWERING_GPU_WAVES_H
#define MPT_LOWERING_GPU_WAVES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mpt {

/// What code for an architecture is judged by.
struct GpuDevice {
  llvm::StringLiteral arch, name;
  int64_t multiprocessors, sharedBytes; ///< shared memory of one multiprocessor
};

/// By NVIDIA's data sheets and the CUDA C++ Programming Guide; an H100 has an H200's multiprocessors.
inline constexpr std::array<GpuDevice, 3> kGpuDevices{GpuDevice{"sm_80", "A100", 108, 164 << 10},
                                                      GpuDevice{"sm_90", "H200", 132, 228 << 10},
                                                      GpuDevice{"sm_100", "B200", 148, 228 << 10}};

/// Their multiprocessors: one grid serves them all.
inline constexpr std::array<int64_t, 3> kMultiprocessors{kGpuDevices[0].multiprocessors, kGpuDevices[1].multiprocessors,
                                                         kGpuDevices[2].multiprocessors};

/// The device of an architecture such as sm_90 or sm_90a; null where none is described.
inline const GpuDevice *gpuDeviceOf(llvm::StringRef arch) {
  arch.consume_back("a");
  const auto *found = llvm::find_if(kGpuDevices, [&](const GpuDevice &device) { return device.arch == arch; });
  return found == kGpuDevices.end() ? nullptr : found;
}

/// Blocks that share a multiprocessor of compute capability 8.0, 9.0 or 10.0. Registers are handed out to warps in
/// units of 256, and the system keeps 1 KiB of shared memory for each block. None where one block asks for too much.
inline int64_t residentBlocks(const GpuDevice &device, int64_t threads, int64_t registers, int64_t sharedBytes) {
  constexpr int64_t blocks = 32, warps = 64, registerFile = 65536, warp = 32, unit = 256, kept = 1024;
  int64_t each = std::max<int64_t>(1, (threads + warp - 1) / warp);
  int64_t used = std::max(unit, (registers * warp + unit - 1) / unit * unit) * each;
  return std::min({blocks, warps / each, registerFile / used, device.sharedBytes / (sharedBytes + kept)});
}

/// Waves that `blocks` blocks make, the last of them in part.
inline double wavesOf(const GpuDevice &device, int64_t blocks, int64_t resident) {
  return static_cast<double>(blocks) / static_cast<double>(device.multiprocessors * std::max<int64_t>(1, resident));
}

/// The share of places that work, over all waves.
inline double fullnessOf(double waves) { return waves > 0 ? waves / std::ceil(waves) : 0; }

/// The time of `blocks` blocks that take `each`, in places times time, on the device and with the number of blocks a
/// multiprocessor that suit them least. Registers decide that number later: it is one of `residents`. Idle places cost
/// as much as working ones, since a wave takes as long with few blocks as with many.
inline double timeOfWaves(int64_t blocks, double each, llvm::ArrayRef<int64_t> residents) {
  double time = 0;
  for (int64_t multiprocessors : kMultiprocessors)
    for (int64_t resident : residents) {
      int64_t places = resident * multiprocessors;
      int64_t filled = llvm::alignTo(blocks, places);
      time = std::max(time, static_cast<double>(filled) * each);
    }
  return time;
}

/// Less by as much as is worth a change.
inline bool isMuchLess(double time, double least) { return time < least * 0.98; }

} // namespace mpt

#endif // MPT_LOWERING_GPU_WAVES_H
