// SPDX-License-Identifier: Apache-2.0
// Waves of blocks: the cost of a grid while nobody knows which device runs it, or how many of its blocks share a
// multiprocessor; and how full they are where both are known. scripts/sass-budget.py has the latter too, and a test
// (test_kernel_report.py) that both agree.
#ifndef MPT_LOWERING_GPU_WAVES_H
#define MPT_LOWERING_GPU_WAVES_H

#include "mpt/Lowering/GPU/Device.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <cmath>

namespace mpt {

/// Blocks that share a multiprocessor of `model`. None where one block asks for too much.
inline int64_t residentBlocks(const DeviceDescription &device, const DeviceModel &model, int64_t threads,
                              int64_t registers, int64_t sharedBytes) {
  int64_t warp = device.warpThreads, unit = device.registerUnit;
  int64_t warps = std::max<int64_t>(1, (threads + warp - 1) / warp);
  int64_t used = std::max(unit, (registers * warp + unit - 1) / unit * unit) * warps;
  return std::min({device.residentBlocks, device.residentThreads / warp / warps, device.registers / used,
                   model.sharedBytes / (sharedBytes + device.keptSharedBytes)});
}

/// Waves that `blocks` blocks make, the last of them in part.
inline double wavesOf(const DeviceModel &model, int64_t blocks, int64_t resident) {
  return static_cast<double>(blocks) / static_cast<double>(model.multiprocessors * std::max<int64_t>(1, resident));
}

/// The share of places that work, over all waves.
inline double fullnessOf(double waves) { return waves > 0 ? waves / std::ceil(waves) : 0; }

/// The time of `blocks` blocks that take `each`, in places times time, on the model and with the number of blocks a
/// multiprocessor that suit them least. Registers decide that number later: it is one of `residents`. Idle places cost
/// as much as working ones, since a wave takes as long with few blocks as with many.
inline double timeOfWaves(const DeviceDescription &device, int64_t blocks, double each,
                          llvm::ArrayRef<int64_t> residents) {
  double time = 0;
  for (const DeviceModel &model : device.models)
    for (int64_t resident : residents) {
      int64_t places = resident * model.multiprocessors;
      int64_t filled = llvm::alignTo(blocks, places);
      time = std::max(time, static_cast<double>(filled) * each);
    }
  return time;
}

/// Less by as much as is worth a change.
inline bool isMuchLess(double time, double least) { return time < least * 0.98; }

} // namespace mpt

#endif // MPT_LOWERING_GPU_WAVES_H
