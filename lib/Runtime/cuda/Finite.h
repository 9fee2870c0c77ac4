// SPDX-License-Identifier: Apache-2.0
// The search for values on the device that are not finite.
#ifndef MPT_RUNTIME_CUDA_FINITE_H
#define MPT_RUNTIME_CUDA_FINITE_H

#include "cuda/CudaDevice.h"

namespace mpt::rt {

/// Says whether the tensor at `data` holds NaNs or infinities. `memory` is a block that searches of a device share,
/// made by the first one. The device's context is current.
mpt_status searchNonfinite(CudaDevice &device, Block &memory, const mpt_check_desc &desc, const void *data, bool &nans,
                           bool &infinities);

} // namespace mpt::rt

#endif
