// SPDX-License-Identifier: Apache-2.0
// Functions that emitted code calls: kernels, copies, fills, constants.
#include "cuda/CudaDevice.h"

#include "core/Finite.h"

#include "mpt-c/abi_replicas.h"

#include <cstring>
#include <string>

using namespace mpt::rt;

Call::Call(const mpt_exec *exec) : device(deviceOf(exec)), context(*static_cast<Context *>(exec->runtime)) {
  const mpt_function_desc *f = context.function;
  if (f && context.nextCall < f->num_calls)
    call = &f->calls[context.nextCall];
  ++context.nextCall;
  context.way = nullptr;
}

mpt_status Call::finish(mpt_status status) {
  if (!status && context.watched)
    status = device.waitFor(device.stream, "on the device");
  if (!status && context.marks) {
    cu::Event event = nullptr;
    device.api.EventCreate(&event, cu::EventDefault);
    device.api.EventRecord(event, device.stream);
    context.marks->push_back(event);
    context.ways.push_back({context.nextCall - 1, context.way});
  }
  if (!status || !call)
    return status;
  std::string text = mpt_last_error();
  return fail(status, "at node '%s' (%s): %s", call->node, call->what, text.c_str());
}

extern "C" {

int32_t mpt_cuda_launch(mpt_exec *exec, int64_t kernel, void *const *args) {
  Call call(exec);
  return call.run([&] { return call.device.launch(kernel, args); });
}

int32_t mpt_cuda_copy(mpt_exec *exec, void *dst, const void *src, int64_t bytes) {
  Call call(exec);
  return call.run([&] {
    CudaDevice &d = call.device;
    return bytes <= 0
               ? MPT_OK
               : cu::check(d.api,
                           d.api.MemcpyDtoDAsync_v2(address(dst), address(src), static_cast<size_t>(bytes), d.stream),
                           "copy");
  });
}

int32_t mpt_cuda_zero(mpt_exec *exec, void *dst, int64_t bytes) {
  Call call(exec);
  return call.run([&] {
    CudaDevice &d = call.device;
    return bytes <= 0
               ? MPT_OK
               : cu::check(d.api, d.api.MemsetD8Async(address(dst), 0, static_cast<size_t>(bytes), d.stream), "fill");
  });
}

int32_t mpt_cuda_check(mpt_exec *exec, const mpt_check_desc *desc, const void *data) {
  auto *context = static_cast<Context *>(exec->runtime);
  return context->finite && !deviceOf(exec).expecting ? context->finite->look(*desc, data) : MPT_OK;
}

int32_t mpt_cuda_repeat(mpt_exec *exec, int64_t call) {
  static_cast<Context *>(exec->runtime)->nextCall = call;
  return MPT_OK;
}

int32_t mpt_cuda_ready(mpt_exec *exec, int64_t output) {
  OutputListener *listener = static_cast<Context *>(exec->runtime)->listener;
  if (listener && !deviceOf(exec).expecting)
    listener->ready(output);
  return MPT_OK;
}

int32_t mpt_cuda_constant(mpt_exec *exec, const void *host, int64_t bytes, const void **out) {
  return deviceOf(exec).constant(host, bytes, out);
}

} // extern "C"
