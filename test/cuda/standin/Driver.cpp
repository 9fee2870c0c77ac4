// SPDX-License-Identifier: Apache-2.0
// The fake driver: memory, streams, events, graphs, modules.
#include "Graphs.h"
#include "Order.h"
#include "State.h"

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

StandInCounts counts;
std::string violations;
int64_t environment(const char *variable, int64_t otherwise) {
  const char *given = getenv(variable);
  return given ? atoll(given) : otherwise;
}
int driverVersion = 13000;
int64_t deviceBytes = environment("MPT_STANDIN_BYTES", int64_t(8) << 30);
int failingAllocation = 0;
int foreignDevice = 0; // whose memory allocations are said to be
int retained = 0;
thread_local std::vector<void *> contexts;
thread_local CapturedGraph *recording = nullptr;

std::map<uint64_t, int64_t> allocations; // address to bytes
std::map<uint64_t, int64_t> freed;
std::map<const char *, size_t> pinned; // page-locked host memory

struct Event;
struct Stream;
struct Operation {
  std::function<void()> work;
  Clock clock;
  Event *waitFor = nullptr; // with its position below
  size_t position = 0;
  bool isCollective = false;
  Stream *behind = nullptr; // without work: a stream to wait for, up to the position
};
struct Stream {
  std::deque<Operation> queue;
  size_t done = 0;       // operations that have left the queue
  bool executes = false; // the one that left it last
  std::thread::id by;    // which thread
  CapturedGraph *capture = nullptr;
  size_t lane = 0; // of the capture
  std::string held;
  bool isBlocking = true;  // ordered with the default stream
  Clock clock;             // of the last operation put there
  double milliseconds = 0; // of all that was enqueued
  size_t end() const { return done + queue.size(); }
};
struct Event {
  Stream *stream = nullptr;
  size_t position = 0; // of the stream, reached when everything before is done
  Clock clock;
  double milliseconds = 0;
  CapturedGraph *capture = nullptr; // where it was recorded in a graph, with its lane and the position there
  size_t lane = 0;
};
Stream defaultStream;
std::set<Stream *> streams{&defaultStream};
Clock hostClock; // of the work that the host has waited for
std::set<Event *> events;
std::atomic<int> collectives{0}; // in queues, or executing

/// Executes `stream` up to `position`, and the work that it waits for.
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
    if (next.behind && streams.count(next.behind))
      execute(*next.behind, next.position);
    if (next.work) {
      Working working(&stream, next.clock);
      next.work();
    }
    stream.executes = false;
    collectives -= next.isCollective;
  }
}

} // namespace

void standin::executeAll() {
  for (Stream *stream : std::set<Stream *>(streams))
    if (streams.count(stream))
      execute(*stream, stream->end());
}

namespace {

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

/// The result of a call that waits, or that comes after one that did.
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

} // namespace

std::recursive_mutex standin::mutex;
bool standin::failed = false, standin::isReported = false;
int standin::failingLaunch = 0, standin::deviceArch = static_cast<int>(environment("MPT_STANDIN_ARCH", 0));

bool standin::needsContext(const char *what) {
  if (contexts.empty())
    violation(std::string(what) + " without a current context");
  return !contexts.empty();
}

bool standin::dry() {
  static const bool set = getenv("MPT_STANDIN_DRY") != nullptr;
  return set;
}

bool standin::isWrong(const char *error) {
  static const char *const made = getenv("MPT_STANDIN_WRONG");
  return made && strcmp(made, error) == 0;
}

void standin::note(const std::string &text) {
  static FILE *const file = [] {
    FILE *opened = getenv("MPT_STANDIN_LOG") ? fopen(getenv("MPT_STANDIN_LOG"), "a") : nullptr;
    if (opened)
      setvbuf(opened, nullptr, _IOLBF, BUFSIZ); // processes share it, and may end without a word
    return opened;
  }();
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

/// The stream of a handle: the default one has none.
static Stream *streamOf(void *handle) { return handle ? static_cast<Stream *>(handle) : &defaultStream; }
static Stream *streamOf(cu::Stream handle) { return streamOf(reinterpret_cast<void *>(handle)); }

/// Puts an operation behind its stream's work, and behind the work that the default stream orders it with.
static void put(Stream &stream, Operation operation) {
  for (Stream *other : streams) {
    if (other == &stream || !stream.isBlocking || !other->isBlocking ||
        (&stream != &defaultStream && other != &defaultStream))
      continue;
    stream.clock.join(other->clock);
    if (other->done < other->end()) {
      Operation wait;
      wait.behind = other;
      wait.position = other->end();
      stream.queue.push_back(std::move(wait));
    }
  }
  stream.clock.join(hostClock);
  stream.clock.advance(&stream);
  operation.clock = stream.clock;
  stream.queue.push_back(std::move(operation));
}

void standin::enqueue(void *handle, Kind kind, double milliseconds, std::function<void()> work) {
  std::lock_guard lock(mutex);
  auto *stream = streamOf(handle);
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
  Operation operation;
  operation.work = std::move(counted);
  put(*stream, std::move(operation));
}

void standin::enqueueCollective(void *handle, std::function<void()> work) {
  std::lock_guard lock(mutex);
  startDevice();
  auto *stream = streamOf(handle);
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
  Operation operation;
  operation.work = std::move(counted);
  operation.isCollective = true;
  put(*stream, std::move(operation));
}

standin::Unlocked::Unlocked() { mutex.unlock(); }
standin::Unlocked::~Unlocked() { mutex.lock(); }

const void *standin::recordingOf(void *handle) {
  std::lock_guard lock(mutex);
  auto *stream = streamOf(handle);
  return streams.count(stream) ? stream->capture : nullptr;
}
void standin::holdStream(void *handle, const char *why) {
  std::lock_guard lock(mutex);
  if (auto *stream = streamOf(handle); streams.count(stream))
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
    memset(host, 0xa5, bytes); // nobody may rely on the content of new memory
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
  for (const Stream *stream : streams)
    hostClock.join(stream->clock);
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
  forget(memory, it->second);
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
    accesses(to, static_cast<int64_t>(bytes), true, "a copy to the device");
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
    accesses(from, static_cast<int64_t>(bytes), false, "a copy from the device");
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
    accesses(from, static_cast<int64_t>(bytes), false, "a copy on the device");
    accesses(to, static_cast<int64_t>(bytes), true, "a copy on the device");
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
    accesses(to, static_cast<int64_t>(bytes), true, "a fill");
    if (void *target = translate(to, static_cast<int64_t>(bytes), "fill"))
      memset(target, value, bytes);
  });
  return cu::Success;
}

// ---- streams and events
EXPORT cu::Result cuStreamCreate(cu::Stream *stream, unsigned flags) {
  std::lock_guard lock(mutex);
  needsContext("cuStreamCreate");
  auto *made = new Stream;
  made->isBlocking = !(flags & cu::StreamNonBlocking);
  streams.insert(made);
  *stream = reinterpret_cast<cu::Stream>(made);
  return cu::Success;
}
EXPORT cu::Result cuStreamDestroy_v2(cu::Stream handle) {
  std::lock_guard lock(mutex);
  auto *stream = streamOf(handle);
  if (!streams.count(stream)) {
    violation("cuStreamDestroy of no stream");
    return invalidHandle;
  }
  execute(*stream, stream->end());
  hostClock.join(stream->clock); // another one may get its address
  for (Event *event : events)
    if (event->stream == stream)
      event->stream = nullptr;
  streams.erase(stream);
  delete stream;
  return cu::Success;
}
/// Executes the operations of `stream` up to `position`.
static cu::Result reach(const char *call, Stream *stream, size_t position, const Clock &clock) {
  if (forbidWhileCapturing(call))
    return captureUnsupported;
  if (stream)
    execute(*stream, position);
  hostClock.join(clock);
  return report();
}
static cu::Result reachEvent(const char *call, cu::Event handle) {
  auto *event = reinterpret_cast<Event *>(handle);
  return reach(call, event->stream, event->position, event->clock);
}
static cu::Result reachEnd(const char *call, cu::Stream handle) {
  needsContext(call);
  auto *stream = streamOf(handle);
  return reach(call, stream, stream->end(), stream->clock);
}

EXPORT cu::Result cuStreamSynchronize(cu::Stream handle) {
  std::lock_guard lock(mutex);
  ++counts.synchronizations;
  return reachEnd("cuStreamSynchronize", handle);
}
/// Whether nobody knows yet: work in which other processes have a part goes on by itself.
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
  auto *on = streamOf(stream);
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
  put(*on, {}); // an event of the default stream waits for the others' work
  event->stream = on;
  event->position = event->stream->end();
  event->clock = on->clock;
  event->milliseconds = event->stream->milliseconds;
  return cu::Success;
}
EXPORT cu::Result cuStreamWaitEvent(cu::Stream handle, cu::Event waitFor, unsigned) {
  std::lock_guard lock(mutex);
  auto *event = reinterpret_cast<Event *>(waitFor);
  auto *stream = streamOf(handle);
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
  if (event->stream) {
    stream->clock.join(event->clock);
    Operation wait;
    wait.waitFor = event;
    wait.position = event->position;
    stream->queue.push_back(std::move(wait));
  }
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
  auto *stream = streamOf(handle);
  if (recording || stream->capture)
    violation("a graph is recorded while another one is");
  recording = stream->capture = new CapturedGraph;
  ++counts.captures;
  return cu::Success;
}
EXPORT cu::Result cuStreamEndCapture(cu::Stream handle, cu::Graph *graph) {
  std::lock_guard lock(mutex);
  auto *stream = streamOf(handle);
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
  auto *stream = streamOf(handle);
  // Its nodes may outlive the graph that was launched.
  const auto *graph = reinterpret_cast<CapturedGraph *>(exec);
  auto run = [lanes = graph->lanes] {
    std::vector<size_t> done(lanes->size());
    executeLane(*lanes, done, 0, lanes->front().nodes.size());
  };
  collectives += graph->hasCollective;
  Operation operation;
  operation.work = run;
  operation.isCollective = graph->hasCollective;
  put(*stream, std::move(operation));
  stream->milliseconds += graph->milliseconds;
  return cu::Success;
}
EXPORT cu::Result cuGraphExecDestroy(cu::GraphExec exec) {
  delete reinterpret_cast<CapturedGraph *>(exec);
  return cu::Success;
}
