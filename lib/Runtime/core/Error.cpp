// SPDX-License-Identifier: Apache-2.0
// Last error text, one a thread, in a fixed buffer so that reporting never allocates.
#include "core/Error.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

static thread_local char text[8192];

mpt_status mpt::rt::fail(mpt_status status, const char *format, ...) {
  // The arguments may hold the last text, such as another thread's or a device's with its place.
  char fresh[sizeof text];
  va_list args;
  va_start(args, format);
  int length = vsnprintf(fresh, sizeof fresh, format, args);
  va_end(args);
  if (length >= static_cast<int>(sizeof fresh))
    strcpy(fresh + sizeof fresh - 5, " ...");
  strcpy(text, fresh);
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
