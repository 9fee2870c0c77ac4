// SPDX-License-Identifier: Apache-2.0
// Zeroed host memory straight from the system: untouched pages cost nothing, large blocks use large pages.
#ifndef MPT_RUNTIME_CORE_HOSTMEMORY_H
#define MPT_RUNTIME_CORE_HOSTMEMORY_H

#include "core/Device.h"

namespace mpt::rt {

/// Null when there is no memory.
std::unique_ptr<Memory> allocateHost(int64_t bytes);

} // namespace mpt::rt

#endif
