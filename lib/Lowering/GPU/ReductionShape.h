// SPDX-License-Identifier: Apache-2.0
// A kernel as the schedules of reductions see it: how long its sums are, and along which axes.
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
  /// The requirement that keeps one pass over the sums' elements from making everything; empty where none does.
  llvm::StringRef inTheWay;

private:
  llvm::StringRef obstacle(GpuKernelBuilder &kernel) const;
};

/// Whether some terms of `op` may be added in FP32 before they join a sum in FP64: it asks for FP32 sums, and each of
/// so few additions is off by 2^-24 of the terms' magnitudes at most.
bool addsTogether(ReduceOp op);

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_REDUCTIONSHAPE_H
