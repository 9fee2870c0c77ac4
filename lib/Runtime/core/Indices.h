// SPDX-License-Identifier: Apache-2.0
// Looks at indices and labels before a function starts.
#ifndef MPT_RUNTIME_CORE_INDICES_H
#define MPT_RUNTIME_CORE_INDICES_H

#include "core/Device.h"

#include <vector>

namespace mpt::rt {

/// Refuses tables that would make checkIndices read outside an input.
mpt_status checkIndexTable(const mpt_module_desc &module, const mpt_function_desc &f);

/// MPT_INVALID_ARGUMENT for the first input at `inputs`, on the host or on the device, that holds an index out of
/// range.
mpt_status checkIndices(Device &device, const mpt_function_desc &f, const std::vector<const void *> &inputs);

} // namespace mpt::rt

#endif
