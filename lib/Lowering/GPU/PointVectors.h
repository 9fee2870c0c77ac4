// SPDX-License-Identifier: Apache-2.0
// How many neighbouring points a thread makes at a time where it makes whole points.
#ifndef MPT_LIB_LOWERING_GPU_POINTVECTORS_H
#define MPT_LIB_LOWERING_GPU_POINTVECTORS_H

#include "mpt/Lowering/GPU/KernelBuilder.h"

namespace mpt {

/// For kernels whose lane is found; of a lane inside of rows nothing is made at a time.
struct PointVectors {
  explicit PointVectors(const GpuKernelBuilder &kernel);

  int64_t lanes = 1, outer = 1; ///< points along the lane, and beside it
  unsigned vector = 1;
  bool ragged = false; ///< one more thread a row makes the points behind its last vector
};

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_POINTVECTORS_H
