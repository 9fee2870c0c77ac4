// SPDX-License-Identifier: Apache-2.0
// Abilities of a target's schedules for groups of ops, for fusion.
#ifndef MPT_FUSION_KERNELCAPABILITIES_H
#define MPT_FUSION_KERNELCAPABILITIES_H

namespace mpt {

struct KernelCapabilities {
  /// The threads of a kernel share one sum among them: long sums need no second stage, and many sums of scalar
  /// arithmetic would be computed one after the other.
  bool sharedSums = false;
  /// A pass down columns writes elements beside their sums.
  bool columnOutputs = false;
  /// A team of threads keeps a row, so that the row's gradient is computed with its sums.
  bool keptRows = false;
  /// One kernel serves many tensors of different sizes that are treated alike.
  bool bundles = false;
  /// Kernels wait for memory more than for arithmetic: passes are joined only where they share a large tensor.
  bool memoryBound = false;

  /// Grids of thread blocks (lib/Lowering/GPU). The default is loops of one thread each (lib/Lowering/CPU).
  static KernelCapabilities ofThreadGrids() { return {true, true, true, true, true}; }
};

} // namespace mpt

#endif // MPT_FUSION_KERNELCAPABILITIES_H
