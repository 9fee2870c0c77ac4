// SPDX-License-Identifier: Apache-2.0
// NCCL's communicator, the calls on it, and the graph of a step that holds them.
#include "cuda/Exchange.h"

#include "core/Types.h"
#include "world/World.h"

#include <chrono>
#include <cinttypes>
#include <cstring>
#include <thread>

using namespace mpt::rt;

namespace {

constexpr const char *sumKernel = "mpt_fold_sum", *maxKernel = "mpt_fold_max";
constexpr auto pause = std::chrono::microseconds(100); // between looks at a communicator that is being made

/// Functions run as parts of a step while this lives.
struct Together {
  CudaDevice &device;
  explicit Together(CudaDevice &device) : device(device) { device.together = true; }
  Together(const Together &) = delete;
  ~Together() { device.together = false; }
};

/// InProgress: the call does not wait for the host's part of it.
bool isFine(nccl::Result result) { return result == nccl::Success || result == nccl::InProgress; }

int typeOf(int64_t dtype) {
  return dtype == MPT_FLOAT32 ? nccl::Float32 : dtype == MPT_BFLOAT16 ? nccl::Bfloat16 : nccl::Float16;
}

} // namespace

mpt_status CudaExchange::open(CudaDevice &device, World *world, std::unique_ptr<DeviceExchange> &out) {
  out = nullptr;
  if (device.kernelNumber(sumKernel) < 0)
    return MPT_OK;
  std::string problem;
  const nccl::Functions *functions = nullptr;
  if (world) {
    const bool isOff = device.options.nccl == "none";
    if (!isOff)
      functions = nccl::open(device.options.nccl, device.options.libraries, problem);
    if (mpt_status status = world->agree("NCCL", functions ? nccl::textOf(functions->version) : "none on this machine"))
      return status;
    if (!functions) {
      if (world->rank() == 0 && !isOff)
        warn("gradients travel through the host's memory, since there is no NCCL (%s): install it, or name libnccl.so "
             "in option nccl, or its folder in option libraries, of the trainer",
             problem.c_str());
      return MPT_OK;
    }
  }
  std::unique_ptr<CudaExchange> made(new CudaExchange(device, world));
  if (functions)
    if (mpt_status status = made->start(*functions))
      return status;
  out = std::move(made);
  return MPT_OK;
}

mpt_status CudaExchange::start(const nccl::Functions &functions) {
  ContextScope scope(device);
  api = &functions;
  const cu::Driver &driver = device.api;
  if (driver.StreamCreate(&side, cu::StreamNonBlocking) != cu::Success ||
      driver.EventCreate(&ahead, cu::EventDisableTiming) != cu::Success ||
      driver.EventCreate(&behind, cu::EventDisableTiming) != cu::Success)
    return fail(MPT_INTERNAL, "creating a stream for NCCL failed");
  struct {
    nccl::UniqueId id{};
    nccl::Result result = nccl::Success;
  } first;
  if (world->rank() == 0)
    first.result = api->GetUniqueId(&first.id);
  if (mpt_status status = world->broadcast(0, &first, sizeof first))
    return status;
  if (first.result != nccl::Success)
    return fail(MPT_INTERNAL, "NCCL of rank 0 does not start: %s", api->GetErrorString(first.result));
  nccl::Config config;
  config.blocking = 0;
  const nccl::Result result = api->CommInitRankConfig(&comm, world->size(), first.id, world->rank(), &config);
  device.watcher = this;
  return settle(result, "making a communicator of NCCL");
}

CudaExchange::~CudaExchange() {
  ContextScope scope(device);
  if (device.watcher == this)
    device.synchronize();
  dropGraph(); // before the resources of its nodes
  // Others may still read messages of this rank; a world that has lost a rank is not waited for.
  if (comm && !settle(api->CommFinalize(comm), "closing NCCL"))
    api->CommDestroy(comm);
  device.watcher = nullptr;
  for (cu::Event event : {ahead, behind})
    if (event)
      device.api.EventDestroy_v2(event);
  if (side)
    device.api.StreamDestroy_v2(side);
}

/// Ends the communicator, and with it exchanges that devices wait for. Where the world has lost a rank, that is why,
/// and the status has its number; else the others learn of this one.
mpt_status CudaExchange::lost(const std::string &why) {
  // A connection of NCCL's may break before the world has heard why.
  mpt_status status = world->check();
  for (int i = 0; !status && i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    status = world->check();
  }
  if (status) {
    failure = mpt_last_error();
  } else {
    failure = why;
    status = MPT_INTERNAL;
    world->abandon(why.c_str());
  }
  failed = status;
  abort();
  return fail(status, "%s", failure.c_str());
}

void CudaExchange::abort() {
  if (comm)
    api->CommAbort(comm);
  comm = nullptr;
  if (!failed) {
    failed = MPT_INTERNAL;
    failure = "this rank has given up an earlier step";
  }
}

mpt_status CudaExchange::check(nccl::Result result, const char *what) {
  if (isFine(result))
    return MPT_OK;
  const char *more = api->GetLastError(comm);
  return lost(std::string(what) + ": " + api->GetErrorString(result) +
              (more && more[0] ? std::string(": ") + more : ""));
}

mpt_status CudaExchange::look(double seconds) {
  if (failed)
    return fail(failed, "%s", failure.c_str());
  if (!comm)
    return MPT_OK;
  if (world->check())
    return lost(mpt_last_error());
  if (seconds > world->patience)
    return lost("the devices of the ranks did not come to the end of a step within " +
                std::to_string(static_cast<int64_t>(world->patience)) + " s");
  nccl::Result error = nccl::Success;
  if (nccl::Result result = api->CommGetAsyncError(comm, &error))
    error = result;
  return check(error, "NCCL");
}

/// Waits until the host's part of a call is done, which goes on beside its caller.
mpt_status CudaExchange::settle(nccl::Result result, const char *what) {
  if (mpt_status status = check(result, what))
    return status;
  for (;;) {
    nccl::Result state = nccl::Success;
    if (mpt_status status = check(api->CommGetAsyncError(comm, &state), what))
      return status;
    if (state != nccl::InProgress)
      return check(state, what);
    if (world->check())
      return lost(mpt_last_error());
    std::this_thread::sleep_for(pause);
  }
}

/// The words of a kernel over `count` elements.
mpt_status CudaExchange::words(int64_t count, void *&out) {
  std::unique_ptr<Memory> &slot = counts[count];
  if (!slot) {
    if (device.capturing)
      return fail(MPT_INTERNAL, "an exchange of %" PRId64 " values appeared after the first step", count);
    if (mpt_status status = device.place("replicas", &count, sizeof count, slot))
      return status;
  }
  out = slot->start;
  return MPT_OK;
}

mpt_status CudaExchange::copy(void *to, const void *from, int64_t bytes) {
  return cu::check(
      device.api, device.api.MemcpyDtoDAsync_v2(address(to), address(from), static_cast<size_t>(bytes), device.present),
      "copying what replicas exchange");
}

mpt_status CudaExchange::combine(bool sums, float *out, const float *a, const float *b, int64_t count) {
  void *extent = nullptr;
  if (mpt_status status = words(count, extent))
    return status;
  void *args[] = {const_cast<float *>(a), const_cast<float *>(b), out, extent};
  return device.launchNamed("replicas", sums ? sumKernel : maxKernel, args);
}

mpt_status CudaExchange::widen(float *out, const void *values, int64_t dtype, int64_t count) {
  void *extent = nullptr;
  if (mpt_status status = words(count, extent))
    return status;
  void *args[] = {const_cast<void *>(values), out, extent};
  return device.launchNamed("replicas", std::string("mpt_widen_") + suffixOf(dtype), args);
}

/// One group of calls: `calls` returns the first result that is not fine. Done once the host's part of it is.
mpt_status CudaExchange::group(const char *what, const std::function<nccl::Result()> &calls) {
  if (failed)
    return look();
  nccl::Result result = api->GroupStart();
  if (isFine(result))
    result = calls();
  const nccl::Result end = api->GroupEnd();
  return settle(isFine(result) ? end : result, what);
}

mpt_status CudaExchange::exchange(const std::vector<DeviceMessage> &sends, const std::vector<DeviceMessage> &receives) {
  for (const DeviceMessage &m : sends)
    perStep.sent += m.count * sizeOf(m.dtype);
  for (const DeviceMessage &m : receives)
    perStep.received += m.count * sizeOf(m.dtype);
  return group("exchanging gradients by NCCL", [&] {
    nccl::Result result = nccl::Success;
    for (const DeviceMessage &m : sends)
      if (isFine(result))
        result = api->Send(m.data, static_cast<size_t>(m.count), typeOf(m.dtype), m.peer, comm, device.present);
    for (const DeviceMessage &m : receives)
      if (isFine(result))
        result = api->Recv(m.data, static_cast<size_t>(m.count), typeOf(m.dtype), m.peer, comm, device.present);
    return result;
  });
}

mpt_status CudaExchange::gather(const std::vector<DeviceRows> &rows) {
  for (const DeviceRows &r : rows) {
    perStep.sent += r.bytes * (world->size() - 1);
    perStep.received += r.bytes * (world->size() - 1);
  }
  return group("gathering by NCCL", [&] {
    nccl::Result result = nccl::Success;
    for (const DeviceRows &r : rows)
      if (isFine(result))
        result = api->AllGather(static_cast<uint8_t *>(r.all) + world->rank() * r.bytes, r.all,
                                static_cast<size_t>(r.bytes), nccl::Uint8, comm, device.present);
    return result;
  });
}

mpt_status CudaExchange::aside() {
  if (!side)
    return MPT_OK;
  cu::Result result = device.api.EventRecord(ahead, device.stream);
  if (result == cu::Success)
    result = device.api.StreamWaitEvent(side, ahead, 0);
  device.present = side;
  isBehind = true;
  return cu::check(device.api, result, "ordering the stream of NCCL");
}

mpt_status CudaExchange::join() {
  if (!isBehind)
    return MPT_OK;
  isBehind = false;
  cu::Result result = device.api.EventRecord(behind, side);
  if (result == cu::Success)
    result = device.api.StreamWaitEvent(device.stream, behind, 0);
  return cu::check(device.api, result, "ordering the stream of NCCL");
}

void CudaExchange::dropGraph() {
  if (graph)
    device.api.GraphExecDestroy(graph);
  graph = nullptr;
}

mpt_status CudaExchange::rehearse(const std::function<mpt_status()> &work) {
  ContextScope scope(device);
  Together together(device);
  return work();
}

mpt_status CudaExchange::run(const std::vector<const void *> &given, bool eager,
                             const std::function<mpt_status()> &work) {
  ContextScope scope(device);
  if (mpt_status status = look())
    return status;
  std::vector<const void *> now = given;
  now.push_back(reinterpret_cast<const void *>(device.scratchVersion()));
  if (now != bindings) {
    dropGraph();
    warm = false;
  }
  Together together(device);
  const auto callByCall = [&] {
    perStep = {};
    mpt_status status = work();
    count();
    return status;
  };
  const CudaOptions &options = device.options;
  if (!warm || eager || options.synchronous || options.eager || refusesGraphs) {
    mpt_status status = callByCall();
    now.back() = reinterpret_cast<const void *>(device.scratchVersion());
    bindings = now;
    warm = !status;
    return status;
  }
  if (!graph) {
    perStep = {};
    if (device.capture(work, graph)) {
      if (failed)
        return look();
      refusesGraphs = true;
      warn("steps run call by call from here on, since their graph could not be recorded: %s", mpt_last_error());
      return callByCall();
    }
  }
  count();
  return cu::check(device.api, device.api.GraphLaunch(graph, device.stream), "starting the graph of a step");
}

void CudaExchange::count() {
  if (world)
    world->addTraffic(perStep.sent, perStep.received);
}
