// SPDX-License-Identifier: Apache-2.0
// The stand-in's driver: memory, streams, events, graphs, modules.
#include "Code.h"
#include "Graphs.h"
#include "StandIn.h"

#include "cuda/Driver.h"
#include "mpt-c/abi.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace mpt::rt;
using namespace standin;

namespace {

// Addresses on the device are host addresses with a bit that makes any use of them on the host a fault.
constexpr uint64_t deviceBit = uint64_t(1) << 62;

std::recursive_mutex mutex;
StandInCounts counts;
std::string violations;
int64_t environment(const char *variable, int64_t otherwise) {
  const char *given = getenv(variable);
  return given ? atoll(given) : otherwise;
}
int deviceArch = static_cast<int>(environment("MPT_STANDIN_ARCH", 0)), driverVersion = 13000;
int64_t deviceBytes = environment("MPT_STANDIN_BYTES", int64_t(8) << 30);
int failingLaunch = 0, failingAllocation = 0;
int foreignDevice = 0;                   // whose memory allocations are said to be
bool failed = false, isReported = false; // the context, as after a fault, and whether a call has said so
int retained = 0;
thread_local std::vector<void *> contexts;
thread_local CapturedGraph *recording = nullptr;

std::map<uint64_t, int64_t> allocations; // address to bytes
std::map<uint64_t, int64_t> freed;
std::map<const char *, size_t> pinned; // page-locked host memory

struct Event;
struct Operation {
  std::function<void()> work;
  Event *waitFor = nullptr; // with its position below
  size_t position = 0;
  bool isCollective = false;
};
struct Stream {
  std::deque<Operation> queue;
  size_t done = 0;       // operations that have left the queue
  bool executes = false; // the one that left it last
  std::thread::id by;    // which thread
  CapturedGraph *capture = nullptr;
  size_t lane = 0; // of the capture
  std::string held;
  double milliseconds = 0; // of all that was enqueued
  size_t end() const { return done + queue.size(); }
};
struct Event {
  Stream *stream = nullptr;
  size_t position = 0; // of the stream, reached when everything before is done
  double milliseconds = 0;
  CapturedGraph *capture = nullptr; // where it was recorded in a graph, with its lane and the position there
  size_t lane = 0;
};
std::set<Stream *> streams;
std::set<Event *> events;
std::atomic<int> collectives{0}; // in queues, or executing

/// Executes `stream` up to `position`, and what that waits for.
void execute(Stream &stream, size_t position) {
  while (streams.count(&stream) && (stream.executes || (stream.done < position && !stream.queue.empty()))) {
    if (stream.executes) {
      if (stream.by == std::this_thread::get_id())
        return;
      Unlocked others;
      usleep(50);
      continue;
    }
    Operation next = std::move(stream.queue.front());
    stream.queue.pop_front();
    ++stream.done;
    stream.executes = true;
    stream.by = std::this_thread::get_id();
    if (next.waitFor && events.count(next.waitFor) && next.waitFor->stream)
      execute(*next.waitFor->stream, next.position);
    if (next.work)
      next.work();
    stream.executes = false;
    collectives -= next.isCollective;
  }
}

void executeAll() {
  for (Stream *stream : std::set<Stream *>(streams))
    if (streams.count(stream))
      execute(*stream, stream->end());
}

/// Streams with work that other processes wait for go on by themselves.
void startDevice() {
  static std::atomic<bool> stop{false};
  static std::thread device;
  if (device.joinable())
    return;
  device = std::thread([] {
    contexts.push_back(&retained);
    while (!stop) {
      usleep(500);
      std::lock_guard lock(mutex);
      if (collectives)
        executeAll();
    }
  });
  atexit([] {
    stop = true;
    device.detach(); // it may wait for a process that is gone
  });
}

bool needsContext(const char *what) {
  if (contexts.empty())
    violation(std::string(what) + " without a current context");
  return !contexts.empty();
}

/// What a call says that waits, or that comes after one that did.
cu::Result report() {
  isReported = isReported || failed;
  return failed ? illegalAddress : cu::Success;
}

/// By which events multiply times: launches shorter than usual, to see how they are timed.
float speed() {
  static const float factor = getenv("MPT_STANDIN_SHORT") ? 0.001f : 1;
  return factor;
}

double copyTime(size_t bytes) { return 0.01 + static_cast<double>(bytes) / (1 << 20) / 100; }

std::string hex(uint64_t address) {
  char text[32];
  snprintf(text, sizeof text, "%#llx", static_cast<unsigned long long>(address & ~deviceBit));
  return text;
}

struct HostModule {
  const mpt_host_image *image;
  std::string text;                 // of PTX that is executed
  std::unique_ptr<DeviceCode> code; // of an image for a device
};
struct HostFunction {
  std::string name;
  const mpt_kernel_desc *desc; // null: of an image for a device
  mpt_host_kernel run;
  Entry entry;
  const HostModule *module = nullptr;
};
StandInExecutor executor = nullptr;

std::map<std::pair<HostModule *, std::string>, std::unique_ptr<HostFunction>> functions;

} // namespace

bool standin::dry() {
  static const bool set = getenv("MPT_STANDIN_DRY") != nullptr;
  return set;
}

void standin::note(const std::string &text) {
  static FILE *const file = getenv("MPT_STANDIN_LOG") ? fopen(getenv("MPT_STANDIN_LOG"), "a") : nullptr;
  if (file)
    fprintf(file, "%s\n", text.c_str());
}

void standin::violation(const std::string &text) {
  std::lock_guard lock(mutex);
  ++counts.violations;
  violations += text + "\n";
}

bool standin::onDevice(uint64_t address) { return address & deviceBit; }

void *standin::translate(uint64_t address, int64_t bytes, const char *what) {
  std::lock_guard lock(mutex);
  auto it = allocations.upper_bound(address);
  if (it != allocations.begin()) {
    --it;
    if (address >= it->first && address + static_cast<uint64_t>(bytes) <= it->first + static_cast<uint64_t>(it->second))
      return dry() ? nullptr : reinterpret_cast<void *>(address & ~deviceBit);
  }
  auto gone = freed.upper_bound(address);
  bool after = gone != freed.begin() && (--gone, address < gone->first + static_cast<uint64_t>(gone->second));
  violation(std::string(what) + ": " + std::to_string(bytes) + " bytes at " + hex(address) +
            (!onDevice(address) ? " are not on the device"
             : after            ? " were freed"
                                : " are in no allocation"));
  return nullptr;
}

bool standin::forbidWhileCapturing(const char *what) {
  if (!recording)
    return false;
  violation(std::string(what) + " while a graph is recorded");
  return true;
}

bool standin::refusesCapture(const char *library) {
  const char *refused = getenv("MPT_STANDIN_REFUSE_CAPTURE");
  if (!recording || !refused || strcmp(refused, library) != 0)
    return false;
  recording->spoiled = true;
  return true;
}

void standin::enqueue(void *handle, Kind kind, double milliseconds, std::function<void()> work) {
  std::lock_guard lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  auto counted = [kind, work = std::move(work)] {
    int64_t *counters[] = {&counts.launches,       &counts.gemms,          &counts.convolutions, &counts.fills,
                           &counts.copiesOnDevice, &counts.copiesToDevice, &counts.copiesToHost};
    ++*counters[static_cast<int>(kind)];
    if (!failed)
      work();
  };
  if (!streams.count(stream))
    return violation("work on a stream that does not exist");
  if (!stream->held.empty())
    violation("work on a stream before " + stream->held);
  if (stream->capture) {
    (*stream->capture->lanes)[stream->lane].nodes.push_back({std::move(counted)});
    stream->capture->milliseconds += milliseconds;
    return;
  }
  if (recording)
    violation("work on another stream while a graph is recorded");
  ++counts.enqueued;
  stream->milliseconds += milliseconds;
  stream->queue.push_back({std::move(counted)});
}

void standin::enqueueCollective(void *handle, std::function<void()> work) {
  std::lock_guard lock(mutex);
  startDevice();
  auto *stream = static_cast<Stream *>(handle);
  if (!streams.count(stream))
    return violation("a collective on a stream that does not exist");
  auto counted = [work = std::move(work)] {
    if (!failed)
      work();
  };
  if (stream->capture) {
    (*stream->capture->lanes)[stream->lane].nodes.push_back({std::move(counted)});
    stream->capture->hasCollective = true;
    return;
  }
  if (recording)
    violation("a collective on another stream while a graph is recorded");
  ++counts.enqueued;
  ++collectives;
  stream->queue.push_back({std::move(counted), nullptr, 0, true});
}

standin::Unlocked::Unlocked() { mutex.unlock(); }
standin::Unlocked::~Unlocked() { mutex.lock(); }

const void *standin::recordingOf(void *handle) {
  std::lock_guard lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  return streams.count(stream) ? stream->capture : nullptr;
}
void standin::holdStream(void *handle, const char *why) {
  std::lock_guard lock(mutex);
  if (auto *stream = static_cast<Stream *>(handle); streams.count(stream))
    stream->held = why;
}
void standin::releaseStream(void *handle) { holdStream(handle, ""); }

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void standin_counts(StandInCounts *out) {
  std::lock_guard lock(mutex);
  *out = counts;
}
EXPORT void standin_reset() {
  std::lock_guard lock(mutex);
  int64_t live = counts.liveBytes;
  counts = {};
  counts.liveBytes = counts.peakBytes = live;
  violations.clear();
  failed = isReported = false;
  failingLaunch = failingAllocation = 0;
}
EXPORT const char *standin_violations() { return violations.c_str(); }
EXPORT void standin_device(int arch, int version, int64_t bytes) {
  deviceArch = arch;
  driverVersion = version;
  deviceBytes = bytes;
}
EXPORT void standin_executor(StandInExecutor given) { executor = given; }
EXPORT int64_t standin_allocation(uint64_t address, uint64_t *start) {
  std::lock_guard lock(mutex);
  auto it = allocations.upper_bound(address);
  if (it == allocations.begin() || (--it, address >= it->first + static_cast<uint64_t>(it->second)))
    return 0;
  *start = it->first & ~deviceBit;
  return it->second;
}
EXPORT void standin_note_violation(const char *text) { violation(text); }
EXPORT void standin_fail_launch(int n) { failingLaunch = n; }
EXPORT void standin_fail_allocation(int n) { failingAllocation = n; }
EXPORT void standin_foreign(int ordinal) { foreignDevice = ordinal; }

// ---- device and context
EXPORT cu::Result cuInit(unsigned) { return static_cast<cu::Result>(environment("MPT_STANDIN_INIT", cu::Success)); }
EXPORT cu::Result cuDriverGetVersion(int *version) {
  const char *given = getenv("MPT_STANDIN_DRIVER");
  *version = given ? atoi(given) : driverVersion;
  return cu::Success;
}
EXPORT cu::Result cuDeviceGetAttribute(int *value, int attribute, cu::Device) {
  *value = attribute == cu::CapabilityMajor ? deviceArch / 10 : attribute == cu::CapabilityMinor ? deviceArch % 10 : 1;
  return cu::Success;
}
EXPORT cu::Result cuDevicePrimaryCtxRetain(cu::Context *context, cu::Device) {
  ++retained;
  *context = reinterpret_cast<cu::Context>(&retained);
  return cu::Success;
}
EXPORT cu::Result cuDevicePrimaryCtxRelease_v2(cu::Device) {
  if (--retained < 0)
    violation("the primary context is released once too often");
  return cu::Success;
}
EXPORT cu::Result cuCtxPushCurrent_v2(cu::Context context) {
  contexts.push_back(context);
  return cu::Success;
}
EXPORT cu::Result cuCtxPopCurrent_v2(cu::Context *context) {
  if (!needsContext("cuCtxPopCurrent"))
    return cu::InvalidValue;
  *context = static_cast<cu::Context>(contexts.back());
  contexts.pop_back();
  return cu::Success;
}
// ---- memory
EXPORT cu::Result cuMemAlloc_v2(cu::Pointer *memory, size_t bytes) {
  std::lock_guard lock(mutex);
  needsContext("cuMemAlloc");
  if (forbidWhileCapturing("cuMemAlloc"))
    return captureUnsupported;
  if ((failingAllocation && --failingAllocation == 0) || counts.liveBytes + static_cast<int64_t>(bytes) > deviceBytes)
    return cu::OutOfMemory;
  void *host = nullptr;
  if (dry()) {
    host = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED)
      return cu::OutOfMemory;
  } else {
    if (posix_memalign(&host, 256, bytes))
      return cu::OutOfMemory;
    memset(host, 0xa5, bytes); // nobody may rely on what is in new memory
  }
  *memory = reinterpret_cast<uint64_t>(host) | deviceBit;
  allocations[*memory] = static_cast<int64_t>(bytes);
  freed.erase(*memory);
  ++counts.allocations;
  counts.liveBytes += static_cast<int64_t>(bytes);
  counts.peakBytes = std::max(counts.peakBytes, counts.liveBytes);
  return cu::Success;
}
EXPORT cu::Result cuMemFree_v2(cu::Pointer memory) {
  std::lock_guard lock(mutex);
  needsContext("cuMemFree");
  if (forbidWhileCapturing("cuMemFree"))
    return captureUnsupported;
  executeAll();
  auto it = allocations.find(memory);
  if (it == allocations.end()) {
    violation("cuMemFree of " + hex(memory) + ", which is no allocation");
    return cu::InvalidValue;
  }
  counts.liveBytes -= it->second;
  ++counts.frees;
  freed[memory] = it->second;
  void *host = reinterpret_cast<void *>(memory & ~deviceBit);
  if (dry())
    munmap(host, static_cast<size_t>(it->second));
  else
    free(host);
  allocations.erase(it);
  return cu::Success;
}
EXPORT cu::Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = static_cast<size_t>(deviceBytes);
  *free = static_cast<size_t>(deviceBytes - counts.liveBytes);
  return cu::Success;
}
EXPORT cu::Result cuMemHostAlloc(void **memory, size_t bytes, unsigned) {
  std::lock_guard lock(mutex);
  needsContext("cuMemHostAlloc");
  *memory = calloc(bytes, 1);
  pinned[static_cast<char *>(*memory)] = bytes;
  return *memory ? cu::Success : cu::OutOfMemory;
}
EXPORT cu::Result cuMemFreeHost(void *memory) {
  std::lock_guard lock(mutex);
  executeAll();
  if (!pinned.erase(static_cast<char *>(memory)))
    violation("cuMemFreeHost of memory that is not page-locked");
  free(memory);
  return cu::Success;
}
EXPORT cu::Result cuPointerGetAttribute(void *value, int attribute, cu::Pointer pointer) {
  std::lock_guard lock(mutex);
  auto it = allocations.upper_bound(pointer);
  if (it == allocations.begin() || (--it, pointer >= it->first + static_cast<uint64_t>(it->second)))
    return cu::InvalidValue;
  *static_cast<int *>(value) = attribute == cu::PointerMemoryType ? static_cast<int>(cu::MemoryDevice) : foreignDevice;
  return cu::Success;
}
EXPORT cu::Result cuMemcpyHtoDAsync_v2(cu::Pointer to, const void *from, size_t bytes, cu::Stream stream) {
  needsContext("cuMemcpyHtoDAsync");
  if (isReported)
    return illegalAddress;
  auto *start = static_cast<const char *>(from);
  auto it = pinned.upper_bound(start);
  bool locked = it != pinned.begin() && (--it, start + bytes <= it->first + it->second);
  std::vector<char> copy;
  // Memory that is not page-locked is read before the call returns.
  if (!locked && !dry())
    copy.assign(start, start + bytes);
  enqueue(stream, Kind::CopyToDevice, copyTime(bytes), [=, copy = std::move(copy)] {
    if (void *target = translate(to, static_cast<int64_t>(bytes), "copy to the device"))
      memcpy(target, copy.empty() ? from : copy.data(), bytes);
  });
  return cu::Success;
}
EXPORT cu::Result cuMemcpyDtoHAsync_v2(void *to, cu::Pointer from, size_t bytes, cu::Stream stream) {
  needsContext("cuMemcpyDtoHAsync");
  if (isReported)
    return illegalAddress;
  enqueue(stream, Kind::CopyToHost, copyTime(bytes), [=] {
    void *source = translate(from, static_cast<int64_t>(bytes), "copy from the device");
    if (source)
      memcpy(to, source, bytes);
    else if (dry())
      memset(to, 0, bytes);
  });
  return cu::Success;
}
EXPORT cu::Result cuMemcpyDtoDAsync_v2(cu::Pointer to, cu::Pointer from, size_t bytes, cu::Stream stream) {
  needsContext("cuMemcpyDtoDAsync");
  if (isReported)
    return illegalAddress;
  enqueue(stream, Kind::CopyOnDevice, copyTime(bytes), [=] {
    void *target = translate(to, static_cast<int64_t>(bytes), "copy on the device, target");
    void *source = translate(from, static_cast<int64_t>(bytes), "copy on the device, source");
    if (!target || !source)
      return;
    if (to < from + bytes && from < to + bytes && to != from)
      violation("a copy on the device whose source and target overlap");
    memmove(target, source, bytes);
  });
  return cu::Success;
}
EXPORT cu::Result cuMemsetD8Async(cu::Pointer to, unsigned char value, size_t bytes, cu::Stream stream) {
  needsContext("cuMemsetD8Async");
  if (isReported)
    return illegalAddress;
  enqueue(stream, Kind::Fill, copyTime(bytes), [=] {
    if (void *target = translate(to, static_cast<int64_t>(bytes), "fill"))
      memset(target, value, bytes);
  });
  return cu::Success;
}

// ---- streams and events
EXPORT cu::Result cuStreamCreate(cu::Stream *stream, unsigned) {
  std::lock_guard lock(mutex);
  needsContext("cuStreamCreate");
  auto *made = new Stream;
  streams.insert(made);
  *stream = reinterpret_cast<cu::Stream>(made);
  return cu::Success;
}
EXPORT cu::Result cuStreamDestroy_v2(cu::Stream handle) {
  std::lock_guard lock(mutex);
  auto *stream = reinterpret_cast<Stream *>(handle);
  if (!streams.count(stream)) {
    violation("cuStreamDestroy of no stream");
    return invalidHandle;
  }
  execute(*stream, stream->end());
  for (Event *event : events)
    if (event->stream == stream)
      event->stream = nullptr;
  streams.erase(stream);
  delete stream;
  return cu::Success;
}
/// Executes what `stream` has up to `position`.
static cu::Result reach(const char *call, Stream *stream, size_t position) {
  if (forbidWhileCapturing(call))
    return captureUnsupported;
  if (stream)
    execute(*stream, position);
  return report();
}
static cu::Result reachEvent(const char *call, cu::Event handle) {
  auto *event = reinterpret_cast<Event *>(handle);
  return reach(call, event->stream, event->position);
}
static cu::Result reachEnd(const char *call, cu::Stream handle) {
  needsContext(call);
  auto *stream = reinterpret_cast<Stream *>(handle);
  return reach(call, stream, stream->end());
}

EXPORT cu::Result cuStreamSynchronize(cu::Stream handle) {
  std::lock_guard lock(mutex);
  ++counts.synchronizations;
  return reachEnd("cuStreamSynchronize", handle);
}
/// Whether nobody knows yet: what other processes have a part in goes on by itself.
static bool isUnknown(std::unique_lock<std::recursive_mutex> &lock) { return !lock.owns_lock() || collectives; }

EXPORT cu::Result cuStreamQuery(cu::Stream handle) {
  std::unique_lock lock(mutex, std::try_to_lock);
  return isUnknown(lock) ? cu::NotReady : reachEnd("cuStreamQuery", handle);
}
EXPORT cu::Result cuEventQuery(cu::Event handle) {
  std::unique_lock lock(mutex, std::try_to_lock);
  return isUnknown(lock) ? cu::NotReady : reachEvent("cuEventQuery", handle);
}
EXPORT cu::Result cuEventCreate(cu::Event *event, unsigned) {
  std::lock_guard lock(mutex);
  auto *made = new Event;
  events.insert(made);
  *event = reinterpret_cast<cu::Event>(made);
  return cu::Success;
}
EXPORT cu::Result cuEventDestroy_v2(cu::Event handle) {
  std::lock_guard lock(mutex);
  auto *event = reinterpret_cast<Event *>(handle);
  if (event->stream)
    execute(*event->stream, event->position);
  if (!events.erase(event))
    violation("cuEventDestroy of no event");
  delete event;
  return cu::Success;
}
EXPORT cu::Result cuEventRecord(cu::Event handle, cu::Stream stream) {
  std::lock_guard lock(mutex);
  auto *event = reinterpret_cast<Event *>(handle);
  auto *on = reinterpret_cast<Stream *>(stream);
  if (!on->held.empty())
    violation("cuEventRecord before " + on->held);
  event->capture = on->capture;
  if (on->capture) { // a dependence of the graph
    event->stream = nullptr;
    event->lane = on->lane;
    event->position = (*on->capture->lanes)[on->lane].nodes.size();
    return cu::Success;
  }
  if (forbidWhileCapturing("cuEventRecord"))
    return captureUnsupported;
  event->stream = on;
  event->position = event->stream->end();
  event->milliseconds = event->stream->milliseconds;
  return cu::Success;
}
EXPORT cu::Result cuStreamWaitEvent(cu::Stream handle, cu::Event waitFor, unsigned) {
  std::lock_guard lock(mutex);
  auto *event = reinterpret_cast<Event *>(waitFor);
  auto *stream = reinterpret_cast<Stream *>(handle);
  if (waitFor && event->capture) {
    CapturedGraph *graph = event->capture;
    if (graph != recording || (stream->capture && stream->capture != graph)) {
      violation("cuStreamWaitEvent for an event of another graph");
      return captureIsolation;
    }
    if (!stream->capture) { // it is forked
      stream->capture = graph;
      stream->lane = graph->lanes->size();
      graph->lanes->emplace_back();
    }
    (*graph->lanes)[stream->lane].nodes.push_back({nullptr, event->lane, event->position});
    if (stream->lane == 0)
      (*graph->lanes)[event->lane].joined = std::max((*graph->lanes)[event->lane].joined, event->position);
    return cu::Success;
  }
  if (forbidWhileCapturing("cuStreamWaitEvent"))
    return captureUnsupported;
  if (event->stream)
    stream->queue.push_back({nullptr, event, event->position});
  return cu::Success;
}
EXPORT cu::Result cuEventSynchronize(cu::Event handle) {
  std::lock_guard lock(mutex);
  return reachEvent("cuEventSynchronize", handle);
}
EXPORT cu::Result cuEventElapsedTime(float *milliseconds, cu::Event start, cu::Event end) {
  static float disorder = 0; // the first of several equals is the fastest
  const double between = reinterpret_cast<Event *>(end)->milliseconds - reinterpret_cast<Event *>(start)->milliseconds;
  *milliseconds = static_cast<float>(between) * speed() * (1 + (disorder += 1e-6f));
  return report();
}

// ---- graphs
EXPORT cu::Result cuStreamBeginCapture_v2(cu::Stream handle, int) {
  std::lock_guard lock(mutex);
  needsContext("cuStreamBeginCapture");
  auto *stream = reinterpret_cast<Stream *>(handle);
  if (recording || stream->capture)
    violation("a graph is recorded while another one is");
  recording = stream->capture = new CapturedGraph;
  ++counts.captures;
  return cu::Success;
}
EXPORT cu::Result cuStreamEndCapture(cu::Stream handle, cu::Graph *graph) {
  std::lock_guard lock(mutex);
  auto *stream = reinterpret_cast<Stream *>(handle);
  *graph = reinterpret_cast<cu::Graph>(stream->capture);
  if (!stream->capture)
    violation("the end of a graph that was not begun");
  bool isUnjoined = false;
  for (size_t i = 1; stream->capture && i < stream->capture->lanes->size(); ++i)
    isUnjoined = isUnjoined || (*stream->capture->lanes)[i].joined < (*stream->capture->lanes)[i].nodes.size();
  if (isUnjoined)
    violation("the end of a graph before a stream that was forked is joined");
  const bool spoiled = stream->capture && (stream->capture->spoiled || isUnjoined);
  CapturedGraph *ended = stream->capture;
  for (Stream *forked : streams)
    if (ended && forked->capture == ended) {
      forked->capture = nullptr;
      forked->lane = 0;
    }
  for (Event *event : events)
    if (event->capture == ended)
      event->capture = nullptr;
  if (spoiled) {
    delete ended;
    *graph = nullptr;
  }
  recording = stream->capture = nullptr;
  return isUnjoined ? captureUnjoined : spoiled ? captureInvalidated : cu::Success;
}
EXPORT cu::Result cuGraphInstantiateWithFlags(cu::GraphExec *exec, cu::Graph graph, unsigned long long) {
  *exec = reinterpret_cast<cu::GraphExec>(new CapturedGraph(*reinterpret_cast<CapturedGraph *>(graph)));
  return cu::Success;
}
EXPORT cu::Result cuGraphDestroy(cu::Graph graph) {
  delete reinterpret_cast<CapturedGraph *>(graph);
  return cu::Success;
}
EXPORT cu::Result cuGraphLaunch(cu::GraphExec exec, cu::Stream handle) {
  std::lock_guard lock(mutex);
  needsContext("cuGraphLaunch");
  if (isReported)
    return illegalAddress;
  ++counts.graphLaunches;
  auto *stream = reinterpret_cast<Stream *>(handle);
  // Its nodes may outlive the graph that was launched.
  const auto *graph = reinterpret_cast<CapturedGraph *>(exec);
  auto run = [lanes = graph->lanes] {
    std::vector<size_t> done(lanes->size());
    executeLane(*lanes, done, 0, lanes->front().nodes.size());
  };
  collectives += graph->hasCollective;
  stream->queue.push_back({run, nullptr, 0, graph->hasCollective});
  stream->milliseconds += graph->milliseconds;
  return cu::Success;
}
EXPORT cu::Result cuGraphExecDestroy(cu::GraphExec exec) {
  delete reinterpret_cast<CapturedGraph *>(exec);
  return cu::Success;
}

// ---- modules
EXPORT cu::Result cuModuleLoadDataEx(cu::Module *module, const void *image, unsigned options, int *names,
                                     void **values) {
  needsContext("cuModuleLoadDataEx");
  auto loaded = std::make_unique<HostModule>();
  if (deviceArch == 0)
    loaded->image = static_cast<const mpt_host_image *>(image);
  else if (!dry() && (!executor || memcmp(image, "//", 2) != 0)) {
    for (unsigned i = 0; i < options; ++i)
      if (names[i] == cu::JitErrorLog)
        strcpy(static_cast<char *>(values[i]), "ptxas fatal: the stand-in has no such processor");
    return cu::NoBinary;
  } else {
    loaded->code = DeviceCode::read(static_cast<const char *>(image));
    if (executor)
      loaded->text = static_cast<const char *>(image);
  }
  *module = reinterpret_cast<cu::Module>(loaded.release());
  return cu::Success;
}
EXPORT cu::Result cuModuleUnload(cu::Module module) {
  std::lock_guard lock(mutex);
  executeAll();
  auto *loaded = reinterpret_cast<HostModule *>(module);
  for (auto it = functions.begin(); it != functions.end();)
    it = it->first.first == loaded ? functions.erase(it) : std::next(it);
  delete loaded;
  return cu::Success;
}
EXPORT cu::Result cuModuleGetFunction(cu::Function *function, cu::Module module, const char *name) {
  std::lock_guard lock(mutex);
  auto *loaded = reinterpret_cast<HostModule *>(module);
  auto &slot = functions[{loaded, name}];
  if (loaded->code) {
    slot.reset(new HostFunction{name, nullptr, nullptr, {}, loaded});
    if (!loaded->code->find(name, slot->entry))
      return 500; // not found
  } else {
    const mpt_host_image &image = *loaded->image;
    for (int64_t i = 0; i < image.num_kernels && !slot; ++i)
      if (strcmp(image.descs[i].name, name) == 0)
        slot.reset(new HostFunction{name, &image.descs[i], image.kernels[i], {}});
    if (!slot)
      return 500;
  }
  *function = reinterpret_cast<cu::Function>(slot.get());
  return cu::Success;
}
EXPORT cu::Result cuFuncSetAttribute(cu::Function function, int attribute, int value) {
  auto *kernel = reinterpret_cast<HostFunction *>(function);
  if (attribute != cu::MaxDynamicShared || value < 0 || value > 227 * 1024)
    return cu::InvalidValue;
  kernel->entry.shared = value;
  return cu::Success;
}
EXPORT cu::Result cuLaunchKernel(cu::Function function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX,
                                 unsigned blockY, unsigned blockZ, unsigned shared, cu::Stream stream,
                                 void **parameters, void **) {
  needsContext("cuLaunchKernel");
  auto *kernel = reinterpret_cast<HostFunction *>(function);
  int64_t args = kernel->entry.args;
  if (const mpt_kernel_desc *d = kernel->desc) {
    const int64_t given[] = {gridX, gridY, gridZ, blockX, blockY, blockZ};
    const int64_t wanted[] = {d->grid[0], d->grid[1], d->grid[2], d->block[0], d->block[1], d->block[2]};
    if (memcmp(given, wanted, sizeof given) != 0)
      violation("kernel " + kernel->name + " is launched on another grid than its own");
    args = d->num_args;
  }
  if (isReported)
    return illegalAddress;
  int64_t threads = int64_t(blockX) * blockY * blockZ;
  if (threads > 1024 || blockZ > 64 || gridX > 0x7fffffff || gridY > 65535 || gridZ > 65535 || !gridX || !gridY ||
      !gridZ || static_cast<int>(shared) > kernel->entry.shared) {
    violation("kernel " + kernel->name + " has more threads, blocks or shared memory than a device takes");
    return cu::InvalidValue;
  }
  if (threads > kernel->entry.threads)
    violation("kernel " + kernel->name + " is launched on more threads than it was compiled for");
  note("launch " + kernel->name);
  // Parameters are read when the launch is requested.
  std::vector<uint64_t> values;
  for (int64_t i = 0; i < args; ++i)
    values.push_back(*static_cast<uint64_t *>(parameters[i]));
  const std::vector<int64_t> extents{gridX, gridY, gridZ, blockX, blockY, blockZ};
  enqueue(stream, Kind::Launch, 2, [kernel, values, extents, shared] {
    if (failingLaunch && --failingLaunch == 0) {
      failed = true;
      return;
    }
    std::vector<void *> args;
    for (uint64_t value : values)
      args.push_back(translate(value, 1, kernel->name.c_str()));
    bool ok = true;
    for (void *arg : args)
      ok = ok && arg;
    if (ok && executor && kernel->module)
      executor(kernel->name.c_str(), kernel->module->text.c_str(), extents.data(), extents.data() + 3, shared,
               values.data(), static_cast<int64_t>(values.size()));
    if (ok && kernel->run)
      kernel->run(args.data(), 0, 1);
  });
  return cu::Success;
}
