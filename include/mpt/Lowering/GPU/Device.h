// SPDX-License-Identifier: Apache-2.0
// A device in numbers, for schedules of kernels and estimates of their cost.
#ifndef MPT_LOWERING_GPU_DEVICE_H
#define MPT_LOWERING_GPU_DEVICE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

namespace mpt {

/// One model of a family of devices.
struct DeviceModel {
  llvm::StringLiteral arch, name;
  int64_t multiprocessors;
  int64_t sharedBytes; ///< of one multiprocessor
};

/// A family of devices that one code serves. A target states it, with its sources; results depend on none of it but the
/// grouping of sums.
struct DeviceDescription {
  llvm::ArrayRef<DeviceModel> models; ///< one grid suits them all; the most multiprocessors last
  int64_t multiprocessors;            ///< of the model that most grids are sized for

  int64_t warpThreads; ///< that run in step, and exchange values without memory
  int64_t accessBytes; ///< widest access of one thread
  int64_t sectorBytes; ///< least that an access moves

  // A block
  int64_t rowThreads;         ///< of a block of a row, unless its threads need few registers
  int64_t sharedBytes;        ///< that it may declare
  int64_t largestSharedBytes; ///< that it may have at most

  // Limits on the blocks that share a multiprocessor
  int64_t residentBlocks, residentThreads;
  int64_t registers;       ///< of 32 bits
  int64_t registerUnit;    ///< handed out to a warp at a time
  int64_t keptSharedBytes; ///< that the system keeps for each block

  /// The model of an architecture such as sm_90 or sm_90a; null where none is described.
  const DeviceModel *modelOf(llvm::StringRef arch) const {
    arch.consume_back("a");
    const auto *found = llvm::find_if(models, [&](const DeviceModel &model) { return model.arch == arch; });
    return found == models.end() ? nullptr : found;
  }
};

} // namespace mpt

#endif // MPT_LOWERING_GPU_DEVICE_H
