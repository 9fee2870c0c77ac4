// SPDX-License-Identifier: Apache-2.0
// Loads the driver's functions, and says why where they are not to be had.
#include "cuda/Driver.h"

#include "cuda/Library.h"

using namespace mpt::rt;
using namespace mpt::rt::cu;

namespace {

struct State {
  Driver functions;
  mpt_status status = MPT_OK;
  std::string text;

  void fail(mpt_status why, std::string what) {
    status = why;
    text = std::move(what);
  }

  void open(const std::string &file, const std::string &folders) {
    Library library;
    if (!library.open("driver", file, folders, {"libcuda.so.1", "libcuda.so"}))
      return fail(MPT_UNSUPPORTED, "no CUDA driver on this machine (" + library.problem +
                                       "): install NVIDIA's driver, or compile the model with --target=cpu");
    Driver &d = functions;
    bool ok = library.load(d.Init, "cuInit") && library.load(d.DriverGetVersion, "cuDriverGetVersion");
    if (!ok)
      return fail(MPT_UNSUPPORTED, "the CUDA driver is not usable: " + library.problem);
    // The version first: an old driver lacks functions, and should be called old.
    if (d.DriverGetVersion(&d.version) != Success || d.version < oldestDriver)
      return fail(MPT_INCOMPATIBLE, "the CUDA driver is too old: expected one for CUDA " + textOf(oldestDriver) +
                                        " or newer, got one for " + textOf(d.version) + ": update NVIDIA's driver");
#define MPT_LOAD(name) ok = ok && library.load(d.name, "cu" #name);
    MPT_LOAD(DeviceGetCount)
    MPT_LOAD(DeviceGet)
    MPT_LOAD(DeviceGetName)
    MPT_LOAD(DeviceGetAttribute)
    MPT_LOAD(DevicePrimaryCtxRetain)
    MPT_LOAD(DevicePrimaryCtxRelease_v2)
    MPT_LOAD(CtxPushCurrent_v2)
    MPT_LOAD(CtxPopCurrent_v2)
    MPT_LOAD(MemAlloc_v2)
    MPT_LOAD(MemFree_v2)
    MPT_LOAD(MemGetInfo_v2)
    MPT_LOAD(MemHostAlloc)
    MPT_LOAD(MemFreeHost)
    MPT_LOAD(MemcpyHtoDAsync_v2)
    MPT_LOAD(MemcpyDtoHAsync_v2)
    MPT_LOAD(MemcpyDtoDAsync_v2)
    MPT_LOAD(MemsetD8Async)
    MPT_LOAD(PointerGetAttribute)
    MPT_LOAD(StreamCreate)
    MPT_LOAD(StreamDestroy_v2)
    MPT_LOAD(StreamSynchronize)
    MPT_LOAD(StreamQuery)
    MPT_LOAD(StreamWaitEvent)
    MPT_LOAD(StreamBeginCapture_v2)
    MPT_LOAD(StreamEndCapture)
    MPT_LOAD(EventCreate)
    MPT_LOAD(EventDestroy_v2)
    MPT_LOAD(EventRecord)
    MPT_LOAD(EventSynchronize)
    MPT_LOAD(EventQuery)
    MPT_LOAD(EventElapsedTime)
    MPT_LOAD(ModuleLoadDataEx)
    MPT_LOAD(ModuleUnload)
    MPT_LOAD(ModuleGetFunction)
    MPT_LOAD(FuncSetAttribute)
    MPT_LOAD(LaunchKernel)
    MPT_LOAD(GraphInstantiateWithFlags)
    MPT_LOAD(GraphLaunch)
    MPT_LOAD(GraphExecDestroy)
    MPT_LOAD(GraphDestroy)
    MPT_LOAD(GetErrorName)
    MPT_LOAD(GetErrorString)
#undef MPT_LOAD
    if (!ok)
      return fail(MPT_UNSUPPORTED, "the CUDA driver is not usable: " + library.problem);
    int count = 0;
    Result result = d.Init(0);
    if (result == Success)
      result = d.DeviceGetCount(&count);
    if (result == NoDevice || (result == Success && count == 0))
      return fail(MPT_UNSUPPORTED, "no CUDA device on this machine, or none that this process may use "
                                   "(CUDA_VISIBLE_DEVICES)");
    if (result != Success)
      return fail(MPT_UNSUPPORTED, std::string("the CUDA driver does not start: ") + nameOf(d, result));
  }

  static std::string textOf(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  }
};

} // namespace

mpt_status mpt::rt::cu::openDriver(const std::string &file, const Driver *&out) {
  State &state = openedOnce<State>(file, "");
  out = &state.functions;
  return state.status == MPT_OK ? MPT_OK : mpt::rt::fail(state.status, "%s", state.text.c_str());
}

const char *mpt::rt::cu::nameOf(const Driver &driver, Result result) {
  static thread_local std::string text;
  const char *name = nullptr, *meaning = nullptr;
  driver.GetErrorName(result, &name);
  driver.GetErrorString(result, &meaning);
  text = std::string(name ? name : "unknown error") + (meaning ? std::string(": ") + meaning : "");
  return text.c_str();
}

mpt_status mpt::rt::cu::check(const Driver &driver, Result result, const char *what) {
  if (result == Success)
    return MPT_OK;
  return fail(result == OutOfMemory ? MPT_OUT_OF_MEMORY : MPT_INTERNAL, "%s: %s", what, nameOf(driver, result));
}
