// SPDX-License-Identifier: Apache-2.0
// NVIDIA's devices from sm_80 on, in numbers.
#ifndef MPT_LIB_TARGET_CUDA_DEVICE_H
#define MPT_LIB_TARGET_CUDA_DEVICE_H

#include "mpt/Lowering/GPU/Device.h"

namespace mpt::cuda {

/// The numbers that grids and cost models assume.
extern const DeviceDescription device;

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_DEVICE_H
