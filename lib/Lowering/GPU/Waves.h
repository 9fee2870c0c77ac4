// SPDX-License-Identifier: Apache-2.0
// Waves of blocks: what a grid costs while nobody knows which device runs it, and how many of its blocks share a
// multiprocessor.
#ifndef MPT_LIB_LOWERING_GPU_WAVES_H
#define MPT_LIB_LOWERING_GPU_WAVES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace mpt {

/// Multiprocessors of an A100, an H100 or H200, and a B200: one grid serves them all.
inline constexpr std::array<int64_t, 3> kMultiprocessors{108, 132, 148};

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

#endif // MPT_LIB_LOWERING_GPU_WAVES_H
