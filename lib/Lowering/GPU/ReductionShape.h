// SPDX-License-Identifier: Apache-2.0
// What the schedules of reductions ask of a kernel: how long its sums are, and along which axes.
#ifndef MPT_LIB_LOWERING_GPU_REDUCTIONSHAPE_H
#define MPT_LIB_LOWERING_GPU_REDUCTIONSHAPE_H

#include "mpt/Lowering/GPU/KernelBuilder.h"

namespace mpt {

/// For kernels with a reduction whose lane is found.
struct ReductionShape {
  explicit ReductionShape(GpuKernelBuilder &kernel);

  ReduceOp main;     ///< the reduction over the most elements
  int64_t extent;    ///< elements that it adds up for a result
  int64_t points;    ///< of the kernel outside its rows
  bool alongRow;     ///< `main` reduces the contiguous axis
  bool flat;         ///< all reductions are over the same elements, and none waits for another
  int64_t busy;      ///< blocks that keep the device busy
  bool fewLongRows;  ///< too few for a team of threads each
  bool worthSharing; ///< enough terms that two launches cost less than one with idle threads
};

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_REDUCTIONSHAPE_H
