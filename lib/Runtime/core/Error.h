// SPDX-License-Identifier: Apache-2.0
// The thread's last error text, and how every part of the runtime reports a failure.
#ifndef MPT_RUNTIME_CORE_ERROR_H
#define MPT_RUNTIME_CORE_ERROR_H

#include "mpt-c/runtime.h"

namespace mpt::rt {

/// Writes a line to standard error: a warning of a call that succeeds all the same.
void warn(const char *format, ...) __attribute__((format(printf, 1, 2)));

/// Stores the formatted text as this thread's last error and returns `status`.
mpt_status fail(mpt_status status, const char *format, ...) __attribute__((format(printf, 2, 3)));

} // namespace mpt::rt

#endif
