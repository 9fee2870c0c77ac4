// SPDX-License-Identifier: Apache-2.0
// Common state of the parts of the fake driver.
#ifndef MPT_TEST_CUDA_STATE_H
#define MPT_TEST_CUDA_STATE_H

#include "StandIn.h"

#include <mutex>

namespace standin {

extern std::recursive_mutex mutex;
extern bool failed, isReported; ///< the context, as after a fault, and whether a call has said so
extern int failingLaunch, deviceArch;

bool needsContext(const char *what);
void executeAll();

} // namespace standin

#endif
