// SPDX-License-Identifier: Apache-2.0
// Last error text, one a thread, in a fixed buffer so that reporting never allocates.
#include "core/Error.h"

#include <cstdarg>
#include <cstdio>

static thread_local char text[1024];

mpt_status mpt::rt::fail(mpt_status status, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return status;
}

void mpt::rt::warn(const char *format, ...) {
  char line[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(line, sizeof line, format, args);
  va_end(args);
  fprintf(stderr, "mpt: %s\n", line);
}

extern "C" const char *mpt_last_error(void) { return text; }
