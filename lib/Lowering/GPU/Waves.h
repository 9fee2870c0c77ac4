// SPDX-License-Identifier: Apache-2.0
// Waves of blocks: what a grid costs while nobody knows how many of its blocks share a multiprocessor.
#ifndef MPT_LIB_LOWERING_GPU_WAVES_H
#define MPT_LIB_LOWERING_GPU_WAVES_H

#include "mpt/Lowering/GPU/Kernel.h"

#include <algorithm>
#include <cmath>

namespace mpt {

/// The time of `blocks` blocks that take `each`, in places times time, where two, three or four of them share a
/// multiprocessor: registers decide that later. Idle places cost as much as working ones, since a wave takes as long
/// with few blocks as with many.
inline double timeOfWaves(int64_t blocks, double each, const GpuTarget &target) {
  double time = 0;
  for (int64_t resident : {2, 3, 4}) {
    int64_t places = resident * target.multiprocessors;
    time = std::max(time, static_cast<double>((blocks + places - 1) / places * places) * each);
  }
  return time;
}

/// Less by as much as is worth a change.
inline bool isMuchLess(double time, double least) { return time < least * 0.98; }

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_WAVES_H
