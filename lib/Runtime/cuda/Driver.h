// SPDX-License-Identifier: Apache-2.0
// The CUDA driver, opened at run time: the functions of libcuda that the runtime uses, declared here so that building
// needs no CUDA. Names, types and numbers follow NVIDIA's CUDA Driver API reference (version 12 on; the ABI
// names carry its _v2 suffixes).
#ifndef MPT_RUNTIME_CUDA_DRIVER_H
#define MPT_RUNTIME_CUDA_DRIVER_H

#include "core/Error.h"

#include <cstddef>
#include <cstdint>
#include <string>

namespace mpt::rt::cu {

using Result = int; // CUresult
using Device = int; // CUdevice
using Pointer = unsigned long long;
using Context = struct CUctx_st *;
using Stream = struct CUstream_st *;
using Event = struct CUevent_st *;
using Module = struct CUmod_st *;
using Function = struct CUfunc_st *;
using Graph = struct CUgraph_st *;
using GraphExec = struct CUgraphExec_st *;

enum : Result {
  Success = 0,
  InvalidValue = 1,
  OutOfMemory = 2,
  NoDevice = 100,
  InvalidDevice = 101,
  NoBinary = 209,
  NotReady = 600
};
enum DeviceAttribute { MultiprocessorCount = 16, CapabilityMajor = 75, CapabilityMinor = 76 };
enum PointerAttribute { PointerMemoryType = 2, PointerDeviceOrdinal = 9 };
enum MemoryType { MemoryHost = 1, MemoryDevice = 2 };
enum StreamFlag { StreamNonBlocking = 1 };
enum EventFlag { EventDefault = 0, EventDisableTiming = 2 };
enum FunctionAttribute { MaxDynamicShared = 8 };
enum JitOption { JitInfoLog = 3, JitInfoLogBytes = 4, JitErrorLog = 5, JitErrorLogBytes = 6 };
enum CaptureMode { CaptureThreadLocal = 1 };
enum CaptureStatus { CaptureNone = 0, CaptureActive = 1 };

/// One member a function, named as in libcuda without the leading "cu".
struct Driver {
  Result (*Init)(unsigned flags);
  Result (*DriverGetVersion)(int *version);
  Result (*DeviceGetCount)(int *count);
  Result (*DeviceGet)(Device *device, int ordinal);
  Result (*DeviceGetName)(char *name, int length, Device device);
  Result (*DeviceGetAttribute)(int *value, int attribute, Device device);
  Result (*DevicePrimaryCtxRetain)(Context *context, Device device);
  Result (*DevicePrimaryCtxRelease_v2)(Device device);
  Result (*CtxPushCurrent_v2)(Context context);
  Result (*CtxPopCurrent_v2)(Context *context);
  Result (*MemAlloc_v2)(Pointer *memory, size_t bytes);
  Result (*MemFree_v2)(Pointer memory);
  Result (*MemGetInfo_v2)(size_t *free, size_t *total);
  Result (*MemHostAlloc)(void **memory, size_t bytes, unsigned flags);
  Result (*MemFreeHost)(void *memory);
  Result (*MemcpyHtoDAsync_v2)(Pointer to, const void *from, size_t bytes, Stream stream);
  Result (*MemcpyDtoHAsync_v2)(void *to, Pointer from, size_t bytes, Stream stream);
  Result (*MemcpyDtoDAsync_v2)(Pointer to, Pointer from, size_t bytes, Stream stream);
  Result (*MemsetD8Async)(Pointer to, unsigned char value, size_t bytes, Stream stream);
  Result (*PointerGetAttribute)(void *value, int attribute, Pointer pointer);
  Result (*StreamCreate)(Stream *stream, unsigned flags);
  Result (*StreamDestroy_v2)(Stream stream);
  Result (*StreamSynchronize)(Stream stream);
  Result (*StreamQuery)(Stream stream);
  Result (*StreamWaitEvent)(Stream stream, Event event, unsigned flags);
  Result (*StreamBeginCapture_v2)(Stream stream, int mode);
  Result (*StreamEndCapture)(Stream stream, Graph *graph);
  Result (*EventCreate)(Event *event, unsigned flags);
  Result (*EventDestroy_v2)(Event event);
  Result (*EventRecord)(Event event, Stream stream);
  Result (*EventSynchronize)(Event event);
  Result (*EventQuery)(Event event);
  Result (*EventElapsedTime)(float *milliseconds, Event start, Event end);
  Result (*ModuleLoadDataEx)(Module *module, const void *image, unsigned options, int *names, void **values);
  Result (*ModuleUnload)(Module module);
  Result (*ModuleGetFunction)(Function *function, Module module, const char *name);
  Result (*FuncSetAttribute)(Function function, int attribute, int value);
  Result (*LaunchKernel)(Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                         unsigned blockY, unsigned blockZ, unsigned sharedBytes, Stream stream, void **parameters,
                         void **extra);
  Result (*GraphInstantiateWithFlags)(GraphExec *exec, Graph graph, unsigned long long flags);
  Result (*GraphLaunch)(GraphExec exec, Stream stream);
  Result (*GraphExecDestroy)(GraphExec exec);
  Result (*GraphDestroy)(Graph graph);
  Result (*GetErrorName)(Result result, const char **name);
  Result (*GetErrorString)(Result result, const char **text);

  int version = 0; // as cuDriverGetVersion says: 1000 * major + 10 * minor
};

/// Opens `file`, or libcuda.so.1 if it is empty, and initializes it, once a process. Fails where there is no driver,
/// one older than the runtime needs, or no device.
mpt_status openDriver(const std::string &file, const Driver *&out);

/// The oldest driver that has all of the above: CUDA 12.0.
inline constexpr int oldestDriver = 12000;

/// MPT_OK for Success; otherwise a status and a text that names `what`.
mpt_status check(const Driver &driver, Result result, const char *what);
/// "CUDA_ERROR_X: text".
const char *nameOf(const Driver &driver, Result result);

} // namespace mpt::rt::cu

#endif
