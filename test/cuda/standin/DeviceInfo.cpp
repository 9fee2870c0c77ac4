// SPDX-License-Identifier: Apache-2.0
// The fake driver: names of devices and errors.
#include "Graphs.h"

#include <cstdio>
#include <cstdlib>

using namespace standin;

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT cu::Result cuDeviceGetCount(int *count) {
  const char *given = getenv("MPT_STANDIN_DEVICES");
  *count = given ? atoi(given) : 1;
  return cu::Success;
}
EXPORT cu::Result cuDeviceGet(cu::Device *device, int ordinal) {
  *device = ordinal;
  return cu::Success;
}
EXPORT cu::Result cuDeviceGetName(char *name, int length, cu::Device) {
  snprintf(name, static_cast<size_t>(length), "stand-in");
  return cu::Success;
}
EXPORT cu::Result cuGetErrorName(cu::Result result, const char **name) {
  *name = result == cu::OutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == illegalAddress     ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : result == captureUnsupported ? "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"
                                         : "CUDA_ERROR_OTHER";
  return cu::Success;
}
EXPORT cu::Result cuGetErrorString(cu::Result, const char **text) {
  *text = "the stand-in says so";
  return cu::Success;
}
