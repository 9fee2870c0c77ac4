// SPDX-License-Identifier: Apache-2.0
// Running functions: staged inputs, the first run, the graph of the later ones.
#include "cuda/CudaDevice.h"

#include "core/Profile.h"
#include "core/Trainer.h"

#include <cstring>

using namespace mpt::rt;

namespace mpt::rt {

/// Page-locked host memory, which the device copies from while the host goes on.
class PinnedMemory {
  const CudaDevice *device = nullptr;

public:
  uint8_t *data = nullptr;
  PinnedMemory() = default;
  PinnedMemory(const PinnedMemory &) = delete;
  ~PinnedMemory() {
    if (!data)
      return;
    ContextScope scope(*device);
    device->api.MemFreeHost(data);
  }
  bool allocate(const CudaDevice &on, int64_t bytes) {
    device = &on;
    void *memory = nullptr;
    if (data)
      on.api.MemFreeHost(data);
    data = nullptr;
    if (on.api.MemHostAlloc(&memory, static_cast<size_t>(bytes), 0) != cu::Success)
      return false;
    data = static_cast<uint8_t *>(memory);
    return true;
  }
};

/// One of two places that the host fills while the device works from the other.
struct InputSlot {
  PinnedMemory host;
  Block memory;
  cu::Event copied = nullptr, read = nullptr; // the host's bytes have left; the device's were read
  int64_t bytes = 0;                          // of the inputs that have come from the host so far
  bool used = false;
};

struct CudaFunction : SiteCache {
  explicit CudaFunction(CudaDevice &device) : device(device) {}
  ~CudaFunction() override {
    ContextScope scope(device);
    dropGraph();
    for (InputSlot &slot : slots)
      for (cu::Event event : {slot.copied, slot.read})
        if (event)
          device.api.EventDestroy_v2(event);
  }
  void dropGraph() {
    if (graph)
      device.api.GraphExecDestroy(graph);
    graph = nullptr;
  }

  CudaDevice &device;
  int64_t inputBytes = -1;
  Block inputs; // where the function reads
  InputSlot slots[2];
  unsigned next = 0;
  /// What the last run worked with: a graph is good while it stays the same.
  std::vector<const void *> bindings;
  bool warm = false;
  cu::GraphExec graph = nullptr;
};

} // namespace mpt::rt

namespace {

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

} // namespace

CudaFunction &CudaDevice::functionOf(FunctionState &state) {
  if (!state.device)
    state.device = std::make_unique<CudaFunction>(*this);
  return static_cast<CudaFunction &>(*state.device);
}

mpt_status CudaDevice::prepare(const mpt_function_desc &f, CudaFunction &function) {
  if (function.inputBytes >= 0)
    return MPT_OK;
  int64_t bytes = 0;
  for (int64_t k = 0; k < f.num_inputs; ++k)
    bytes += aligned(f.inputs[k].bytes);
  bool ok = function.inputs.allocate(*this, bytes);
  for (InputSlot &slot : function.slots)
    ok = ok && api.EventCreate(&slot.copied, cu::EventDisableTiming) == cu::Success &&
         api.EventCreate(&slot.read, cu::EventDisableTiming) == cu::Success;
  if (!ok)
    return noInputs(f, bytes);
  function.inputBytes = bytes;
  staged += bytes;
  return MPT_OK;
}

mpt_status CudaDevice::noInputs(const mpt_function_desc &f, int64_t bytes) const {
  return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of inputs of '%s'%s", static_cast<long long>(bytes), f.name,
              freeMemory().c_str());
}

/// Room in a slot for inputs from the host; those that lie on the device need none.
mpt_status CudaDevice::reserve(const mpt_function_desc &f, InputSlot &slot, int64_t bytes) {
  if (slot.bytes >= bytes)
    return MPT_OK;
  if (!slot.memory.allocate(*this, bytes) || !slot.host.allocate(*this, bytes))
    return noInputs(f, bytes);
  staged += bytes - slot.bytes;
  slot.bytes = bytes;
  return synchronize(); // the slot's zeros were written on the other stream
}

mpt_status CudaDevice::stage(const mpt_function_desc &f, FunctionState &state) {
  ContextScope scope(*this);
  CudaFunction &function = functionOf(state);
  if (mpt_status status = prepare(f, function))
    return status;
  const auto count = static_cast<size_t>(f.num_inputs);
  std::vector<bool> onHost(count);
  int64_t fromHost = 0;
  for (size_t k = 0; k < count; ++k) {
    bool host = true;
    if (mpt_status status = locate(state.inputPointers[k], host))
      return status;
    onHost[k] = host;
    fromHost += host ? aligned(f.inputs[k].bytes) : 0;
  }
  InputSlot &slot = function.slots[function.next];
  function.next ^= 1;
  // Two runs ago the same slot was filled; as a rule its bytes have left long since.
  cu::Result result = slot.used ? api.EventSynchronize(slot.copied) : cu::Success;
  if (slot.used && result == cu::Success)
    result = api.StreamWaitEvent(copies, slot.read, 0);
  if (mpt_status status = result == cu::Success ? reserve(f, slot, fromHost) : MPT_OK)
    return status;
  struct Piece {
    int64_t offset, from, bytes;
  };
  std::vector<Piece> pieces; // runs of inputs that come from the host: where they are read, and where in the slot
  int64_t offset = 0, filled = 0;
  for (size_t k = 0; k < count && result == cu::Success; ++k) {
    const void *&given = state.inputPointers[k];
    int64_t bytes = f.inputs[k].bytes;
    if (onHost[k] && bytes) {
      memcpy(slot.host.data + filled, given, static_cast<size_t>(bytes));
      if (!pieces.empty() && aligned(pieces.back().offset + pieces.back().bytes) == offset)
        pieces.back().bytes = offset + bytes - pieces.back().offset;
      else
        pieces.push_back({offset, filled, bytes});
      filled += aligned(bytes);
    } else if (bytes) {
      result = api.MemcpyDtoDAsync_v2(address(function.inputs.data() + offset), address(given),
                                      static_cast<size_t>(bytes), stream);
    }
    given = function.inputs.data() + offset;
    offset += aligned(bytes);
  }
  if (result == cu::Success && filled)
    result = api.MemcpyHtoDAsync_v2(address(slot.memory.data()), slot.host.data, static_cast<size_t>(filled), copies);
  if (result == cu::Success)
    result = api.EventRecord(slot.copied, copies);
  if (result == cu::Success)
    result = api.StreamWaitEvent(stream, slot.copied, 0);
  for (const Piece &piece : pieces)
    if (result == cu::Success)
      result =
          api.MemcpyDtoDAsync_v2(address(function.inputs.data() + piece.offset),
                                 address(slot.memory.data() + piece.from), static_cast<size_t>(piece.bytes), stream);
  if (result == cu::Success)
    result = api.EventRecord(slot.read, stream);
  slot.used = result == cu::Success;
  return cu::check(api, result, "copying inputs to the device");
}

mpt_status CudaDevice::runOnce(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec, bool watch) {
  state.context.nextCall = 0;
  state.context.watched = watch;
  warming = watch;
  auto status = static_cast<mpt_status>(f.entry(&exec));
  warming = state.context.watched = false;
  return status;
}

mpt_status CudaDevice::profile(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) {
  std::vector<void *> marks;
  auto mark = [&] {
    cu::Event event = nullptr;
    api.EventCreate(&event, cu::EventDefault);
    api.EventRecord(event, stream);
    marks.push_back(event);
  };
  state.profile->beginRun();
  mark();
  state.context.marks = &marks;
  state.context.ways.clear();
  mpt_status status = runOnce(f, state, exec, false);
  state.context.marks = nullptr;
  if (!status)
    status = synchronize();
  for (size_t i = 1; i < marks.size(); ++i) {
    float milliseconds = 0;
    api.EventElapsedTime(&milliseconds, static_cast<cu::Event>(marks[i - 1]), static_cast<cu::Event>(marks[i]));
    state.profile->add(static_cast<double>(milliseconds) / 1000, state.context.ways[i - 1]);
  }
  for (void *event : marks)
    api.EventDestroy_v2(static_cast<cu::Event>(event));
  state.profile->endRun();
  return status;
}

mpt_status CudaDevice::capture(const mpt_function_desc &f, CudaFunction &function, mpt_exec &exec) {
  auto &context = *static_cast<Context *>(exec.runtime);
  if (mpt_status status =
          cu::check(api, api.StreamBeginCapture_v2(stream, cu::CaptureThreadLocal), "recording the graph of a step"))
    return status;
  context.nextCall = 0;
  capturing = true;
  auto status = static_cast<mpt_status>(f.entry(&exec));
  capturing = false;
  cu::Graph graph = nullptr;
  cu::Result result = api.StreamEndCapture(stream, &graph);
  if (!status && result == cu::Success)
    result = api.GraphInstantiateWithFlags(&function.graph, graph, 0);
  if (graph)
    api.GraphDestroy(graph);
  return status ? status : cu::check(api, result, "recording the graph of a step");
}

mpt_status CudaDevice::run(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) {
  ContextScope scope(*this);
  CudaFunction &function = functionOf(state);
  std::vector<const void *> bindings{exec.state, exec.arena};
  bindings.insert(bindings.end(), exec.inputs, exec.inputs + f.num_inputs);
  bindings.insert(bindings.end(), exec.outputs, exec.outputs + f.num_outputs);
  bindings.push_back(reinterpret_cast<const void *>(scratchGeneration));
  if (bindings != function.bindings) {
    function.dropGraph();
    function.warm = false;
  }
  // The first run is not recorded: it chooses algorithms and grows scratch. It is also watched call by call, so that a
  // kernel that fails is named.
  if (!function.warm || options.synchronous) {
    if (mpt_status status = runOnce(f, state, exec, true))
      return status;
    bindings.back() = reinterpret_cast<const void *>(scratchGeneration);
    function.bindings = bindings;
    function.warm = true;
    return MPT_OK;
  }
  if (state.profile)
    return profile(f, state, exec);
  if (options.eager || state.context.finite) // what looks at values waits for them
    return runOnce(f, state, exec, false);
  if (!function.graph)
    if (mpt_status status = capture(f, function, exec))
      return status;
  return cu::check(api, api.GraphLaunch(function.graph, stream), "starting the graph of a step");
}
