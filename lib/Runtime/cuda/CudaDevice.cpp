// SPDX-License-Identifier: Apache-2.0
// Opening a device, its memory, its kernels.
#include "cuda/CudaDevice.h"

#include "cuda/Blas.h"
#include "cuda/Convolutions.h"
#include "cuda/Exchange.h"
#include "cuda/Finite.h"
#include "cuda/PlanCache.h"
#include "cuda/Run.h"
#include "mpt-c/abi_images.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/uio.h>
#include <unistd.h>

using namespace mpt::rt;

const char *const mpt::rt::targetName = "cuda";

namespace {

class DeviceMemory : public Memory {
public:
  DeviceMemory(const CudaDevice &device, uint8_t *start, int64_t length) : Memory(start, length), device(device) {}
  ~DeviceMemory() override {
    ContextScope scope(device);
    device.api.MemFree_v2(address(start)); // waits for the work that uses it
  }

private:
  const CudaDevice &device;
};

bool isMachineCode(const mpt_image_desc &image) {
  return image.kind == MPT_IMAGE_CUBIN || image.kind == MPT_IMAGE_EXACT_CUBIN;
}
bool isExact(const mpt_image_desc &image) {
  return image.kind == MPT_IMAGE_EXACT_PTX || image.kind == MPT_IMAGE_EXACT_CUBIN;
}

std::string nameOf(const mpt_image_desc &image) {
  return (isMachineCode(image) ? "sm_" : "PTX for sm_") + std::to_string(image.arch) + (isExact(image) ? "a" : "");
}

std::string archsOf(const mpt_module_desc &m) {
  std::string text;
  for (int64_t i = 0; i < m.num_images; ++i)
    text += (i ? ", " : "") + nameOf(m.images[i]);
  return text.empty() ? "none" : text;
}

/// Whether an image runs on a device of compute capability `arch`.
bool runsOn(const mpt_image_desc &image, int arch) {
  if (image.kind == MPT_IMAGE_HOST)
    return arch == 0;
  if (isExact(image))
    return image.arch == arch;
  if (image.kind == MPT_IMAGE_CUBIN)
    return image.arch / 10 == arch / 10 && image.arch <= arch;
  return image.arch <= arch;
}

} // namespace

mpt_status mpt::rt::checkMachine(const mpt_module_desc &m, const char *source) {
  for (int64_t i = 0; i < m.num_kernels; ++i) {
    const mpt_kernel_desc &k = m.kernels[i];
    bool ok = k.name && k.num_args >= 0 && k.num_args < 4096 && k.shared_bytes >= 0;
    for (int d = 0; d < 3; ++d)
      ok = ok && k.grid[d] > 0 && k.grid[d] <= INT32_MAX && k.block[d] > 0 && k.block[d] <= 1024;
    if (!ok)
      return fail(MPT_BAD_FILE, "%s: kernel '%s' of its tables makes no sense", source, k.name ? k.name : "(no name)");
  }
  return MPT_OK;
}

mpt_status mpt::rt::openDevice(const mpt_module_desc &module, int number, Options &given,
                               std::unique_ptr<Device> &out) {
  CudaOptions options;
  if (mpt_status status = options.read(given))
    return status;
  if (mpt_status status = given.finish())
    return status;
  const cu::Driver *api = nullptr;
  if (mpt_status status = cu::openDriver(options.driver, api))
    return status;
  auto device = std::make_unique<CudaDevice>(*api, module, std::move(options));
  if (mpt_status status = device->open(number))
    return status;
  out = std::move(device);
  return MPT_OK;
}

CudaDevice::CudaDevice(const cu::Driver &api, const mpt_module_desc &module, CudaOptions options)
    : api(api), module(module), options(std::move(options)), chosen(this->options.cache) {}

// Kernels run on the device, and nothing else needs threads.
int mpt::rt::threadsOf(const mpt_exec *) { return 1; }

mpt_status CudaDevice::open(int number) {
  ordinal = number;
  int count = 0, major = 0, minor = 0;
  api.DeviceGetCount(&count);
  if (number < 0 || number >= count)
    return fail(MPT_INVALID_ARGUMENT, "expected a CUDA device below %d, got %d", count, number);
  char text[256] = "";
  if (mpt_status status = cu::check(api, api.DeviceGet(&device, number), "opening the CUDA device"))
    return status;
  api.DeviceGetName(text, sizeof text - 1, device);
  name = text;
  api.DeviceGetAttribute(&major, cu::CapabilityMajor, device);
  api.DeviceGetAttribute(&minor, cu::CapabilityMinor, device);
  arch = 10 * major + minor;
  // The primary context, which other libraries of the process use too: their memory and ours can be exchanged.
  if (mpt_status status = cu::check(api, api.DevicePrimaryCtxRetain(&context, device), "opening the CUDA device"))
    return status;
  ContextScope scope(*this);
  // Work on this stream is ordered with that on the default stream, so that tensors may be handed over without waiting.
  if (mpt_status status = cu::check(api, api.StreamCreate(&stream, 0), "creating a stream"))
    return status;
  present = stream;
  if (mpt_status status = cu::check(api, api.StreamCreate(&copies, cu::StreamNonBlocking), "creating a stream"))
    return status;
  return loadImage();
}

mpt_status CudaDevice::loadImage() {
  if (!module.num_kernels)
    return MPT_OK;
  std::vector<const mpt_image_desc *> images;
  for (int64_t i = 0; i < module.num_images; ++i)
    if (runsOn(module.images[i], arch) && (!options.ptxOnly || !isMachineCode(module.images[i])))
      images.push_back(&module.images[i]);
  // The latest architecture first; code for this one alone before other code; machine code before PTX, which the driver
  // has to compile.
  std::sort(images.begin(), images.end(), [](const mpt_image_desc *a, const mpt_image_desc *b) {
    return a->arch != b->arch ? a->arch > b->arch : a->kind > b->kind;
  });
  if (images.empty())
    return fail(MPT_INCOMPATIBLE,
                "model '%s' has no code for this device (%s, sm_%d); it has: %s: compile it with --arch=sm_%d",
                module.name, name.c_str(), arch, archsOf(module).c_str(), arch);
  std::string problems;
  cu::Result result = cu::Success;
  for (const mpt_image_desc *image : images) {
    std::vector<char> log(16 << 10, 0);
    int settings[] = {cu::JitErrorLog, cu::JitErrorLogBytes};
    void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
    result = api.ModuleLoadDataEx(&code, image->data, 2, settings, values);
    if (result == cu::Success)
      return findKernels(*image);
    problems += std::string(problems.empty() ? "" : "; ") + nameOf(*image) + ": " + cu::nameOf(api, result);
    if (log[0])
      problems += std::string(": ") + log.data();
    if (result == cu::OutOfMemory)
      break;
  }
  return fail(result == cu::OutOfMemory ? MPT_OUT_OF_MEMORY : MPT_INCOMPATIBLE,
              "model '%s': the driver does not take its code on this device (%s, sm_%d): %s", module.name, name.c_str(),
              arch, problems.c_str());
}

mpt_status CudaDevice::findKernels(const mpt_image_desc &image) {
  constexpr int64_t usual = 48 << 10; // bytes of dynamic shared memory that need no permission
  kernels.resize(static_cast<size_t>(module.num_kernels));
  for (int64_t i = 0; i < module.num_kernels; ++i) {
    cu::Function &kernel = kernels[static_cast<size_t>(i)];
    const mpt_kernel_desc &desc = module.kernels[i];
    if (api.ModuleGetFunction(&kernel, code, desc.name) != cu::Success)
      return fail(MPT_BAD_FILE, "model '%s' has no kernel '%s' in its code for sm_%lld", module.name, desc.name,
                  static_cast<long long>(image.arch));
    if (desc.shared_bytes > usual)
      if (cu::Result result = api.FuncSetAttribute(kernel, cu::MaxDynamicShared, static_cast<int>(desc.shared_bytes)))
        return fail(MPT_INCOMPATIBLE, "kernel '%s' needs %lld bytes of shared memory, which this device refuses: %s",
                    desc.name, static_cast<long long>(desc.shared_bytes), cu::nameOf(api, result));
  }
  return MPT_OK;
}

CudaDevice::~CudaDevice() {
  if (!context)
    return;
  {
    ContextScope scope(*this);
    if (stream)
      api.StreamSynchronize(stream);
    convLibrary.reset();
    blasLibrary.reset();
    constants.clear();
    scratchMemory = Block();
    searchMemory = Block();
    if (produced)
      api.EventDestroy_v2(produced);
    if (code)
      api.ModuleUnload(code);
    if (copies)
      api.StreamDestroy_v2(copies);
    if (stream)
      api.StreamDestroy_v2(stream);
  }
  api.DevicePrimaryCtxRelease_v2(device);
}

std::unique_ptr<Memory> CudaDevice::allocate(int64_t bytes) {
  ContextScope scope(*this);
  cu::Pointer memory = 0;
  auto size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  if (api.MemAlloc_v2(&memory, size) != cu::Success)
    return nullptr;
  auto result = std::make_unique<DeviceMemory>(*this, reinterpret_cast<uint8_t *>(memory), bytes);
  if (api.MemsetD8Async(memory, 0, size, stream) != cu::Success)
    return nullptr;
  return result;
}

mpt_status CudaDevice::stage(const mpt_function_desc &f, FunctionState &state) {
  ContextScope scope(*this);
  return FunctionRun::of(*this, f, state).stage(state);
}

mpt_status CudaDevice::run(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) {
  ContextScope scope(*this);
  return FunctionRun::of(*this, f, state).run(state, exec);
}

mpt_status CudaDevice::time(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec, int64_t runs,
                            double &seconds) {
  ContextScope scope(*this);
  return FunctionRun::of(*this, f, state).time(state, exec, runs, seconds);
}

std::string CudaDevice::libraries() {
  ContextScope scope(*this);
  std::string text = "driver " + std::to_string(api.version);
  if (BlasLibrary *found = blas())
    text += ", cuBLASLt " + std::to_string(found->api.GetVersion());
  if (ConvLibrary *found = convolutions())
    text += ", cuDNN " + std::to_string(found->api.GetVersion());
  return text;
}

mpt_status CudaDevice::findNonfinite(const mpt_check_desc &desc, const void *data, bool &nans, bool &infinities) {
  ContextScope scope(*this);
  return searchNonfinite(*this, searchMemory, desc, data, nans, infinities);
}

std::string CudaDevice::freeMemory() const {
  ContextScope scope(*this);
  size_t free = 0, total = 0;
  if (api.MemGetInfo_v2(&free, &total) != cu::Success)
    return "";
  return ": device " + std::to_string(ordinal) + " (" + name + ") has " + std::to_string(free) + " of " +
         std::to_string(total) + " bytes free";
}

mpt_status CudaDevice::upload(const Transfer *transfers, size_t count) {
  ContextScope scope(*this);
  for (size_t i = 0; i < count; ++i)
    if (transfers[i].bytes)
      if (mpt_status status = cu::check(api,
                                        api.MemcpyHtoDAsync_v2(address(transfers[i].to), transfers[i].from,
                                                               static_cast<size_t>(transfers[i].bytes), stream),
                                        "copying to the device"))
        return status;
  return synchronize();
}

mpt_status CudaDevice::download(const Transfer *transfers, size_t count) {
  ContextScope scope(*this);
  for (size_t i = 0; i < count; ++i)
    if (transfers[i].bytes)
      if (mpt_status status = cu::check(api,
                                        api.MemcpyDtoHAsync_v2(transfers[i].to, address(transfers[i].from),
                                                               static_cast<size_t>(transfers[i].bytes), stream),
                                        "copying from the device"))
        return status;
  return synchronize();
}

/// On the stream of inputs, which nothing else waits for, behind the default stream's work: the data may not be
/// complete yet.
mpt_status CudaDevice::fetch(const Transfer &transfer) {
  ContextScope scope(*this);
  cu::Result result = cu::Success;
  if (!produced)
    result = api.EventCreate(&produced, cu::EventDisableTiming);
  if (result == cu::Success)
    result = api.EventRecord(produced, nullptr);
  if (result == cu::Success)
    result = api.StreamWaitEvent(copies, produced, 0);
  if (transfer.bytes && result == cu::Success)
    result = api.MemcpyDtoHAsync_v2(transfer.to, address(transfer.from), static_cast<size_t>(transfer.bytes), copies);
  if (result != cu::Success)
    return cu::check(api, result, "copying indices from the device");
  return waitFor(copies, "copying indices from the device");
}

mpt_status CudaDevice::locate(const void *data, bool &onHost) {
  ContextScope scope(*this);
  int type = 0, where = 0;
  onHost = true;
  // Memory that the driver does not know is the host's, or nobody's: freed memory of the device, for one.
  if (api.PointerGetAttribute(&type, cu::PointerMemoryType, address(data)) != cu::Success || type != cu::MemoryDevice) {
    char byte;
    iovec here{&byte, 1}, there{const_cast<void *>(data), 1};
    if (process_vm_readv(getpid(), &here, 1, &there, 1, 0) == 1 || errno != EFAULT)
      return MPT_OK;
    return fail(MPT_INVALID_ARGUMENT,
                "expected inputs in host memory or on device %d, got the address %p, which is neither", ordinal, data);
  }
  onHost = false;
  if (api.PointerGetAttribute(&where, cu::PointerDeviceOrdinal, address(data)) == cu::Success && where != ordinal)
    return fail(MPT_INVALID_ARGUMENT, "expected inputs in host memory or on device %d, got one on device %d", ordinal,
                where);
  return MPT_OK;
}

mpt_status CudaDevice::openExchange(World *world, std::unique_ptr<DeviceExchange> &out) {
  return CudaExchange::open(*this, world, out);
}

mpt_status CudaDevice::wait(const char *what, const std::function<cu::Result()> &isDone) {
  constexpr int hasty = 100; // looks before the host lets others have the processor
  constexpr useconds_t pause = 20;
  const auto begin = std::chrono::steady_clock::now();
  cu::Result result = isDone();
  for (int i = 0; result == cu::NotReady; ++i) {
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (mpt_status status = watcher->look(waited.count()))
      return status;
    if (i >= hasty)
      usleep(pause);
    result = isDone();
  }
  return cu::check(api, result, what);
}

mpt_status CudaDevice::waitFor(cu::Stream stream, const char *what) {
  if (!watcher)
    return cu::check(api, api.StreamSynchronize(stream), what);
  return wait(what, [&] { return api.StreamQuery(stream); });
}

mpt_status CudaDevice::waitForEvent(cu::Event event, const char *what) {
  if (!watcher)
    return cu::check(api, api.EventSynchronize(event), what);
  return wait(what, [&] { return api.EventQuery(event); });
}

mpt_status CudaDevice::synchronize() {
  ContextScope scope(*this);
  mpt_status status = waitFor(stream, "the work on the device failed");
  if (status != MPT_INTERNAL || (watcher && watcher->look(0)))
    return status;
  const std::string why = mpt_last_error();
  return fail(status, "%s; option synchronous=1 of the trainer names the node", why.c_str());
}

uint8_t *CudaDevice::scratch(int64_t bytes) {
  if (scratchMemory.bytes() >= bytes)
    return scratchMemory.data();
  if (capturing) { // the run before made it large enough
    fail(MPT_INTERNAL, "scratch of a library call grew after its first run");
    return nullptr;
  }
  ++scratchGeneration;
  if (!scratchMemory.allocate(*this, bytes)) {
    fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of scratch of a library call%s", static_cast<long long>(bytes),
         freeMemory().c_str());
    return nullptr;
  }
  return scratchMemory.data();
}

mpt_status CudaDevice::constant(const void *host, int64_t bytes, const void **out) {
  auto &slot = constants[host];
  if (!slot) {
    if (capturing)
      return fail(MPT_INTERNAL, "a constant appeared after the first run");
    slot = allocate(bytes);
    if (!slot)
      return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of constants%s", static_cast<long long>(bytes),
                  freeMemory().c_str());
    constantBytes += bytes;
    Transfer whole{slot->start, host, bytes};
    if (mpt_status status = upload(&whole, 1)) {
      constants.erase(host);
      return status;
    }
  }
  *out = slot->start;
  return MPT_OK;
}

BlasLibrary *CudaDevice::blas() {
  if (!blasLibrary)
    blasLibrary = BlasLibrary::open(*this);
  return blasLibrary.get();
}

ConvLibrary *CudaDevice::convolutions() {
  if (!triedConvolutions && !capturing) {
    triedConvolutions = true;
    if (options.cudnn != "none" && blas())
      convLibrary = ConvLibrary::open(*this);
  }
  return convLibrary.get();
}

mpt_status CudaDevice::launchNamed(const char *what, const std::string &kernel, void *const *args) {
  int64_t number = kernelNumber(kernel.c_str());
  if (number < 0)
    return fail(MPT_UNSUPPORTED, "%s: no cuDNN on this machine that takes it, and the model has no kernel %s", what,
                kernel.c_str());
  return launch(number, args);
}

mpt_status CudaDevice::place(const char *what, const void *host, size_t bytes, std::unique_ptr<Memory> &to) {
  to = allocate(static_cast<int64_t>(bytes));
  if (!to)
    return fail(MPT_OUT_OF_MEMORY, "%s: no memory on the device", what);
  Transfer whole{to->start, host, static_cast<int64_t>(bytes)};
  return upload(&whole, 1);
}

bool CudaDevice::takeChoices(const std::string &text, const char *path) {
  if (!chosen.take(text, path))
    return false;
  if (convLibrary)
    convLibrary->plans->clear();
  return true;
}

void CudaDevice::makePlans() {
  if (convLibrary)
    convLibrary->plans->build();
}

float CudaDevice::timeOnce(const std::function<bool()> &enqueue) {
  cu::Event events[2] = {};
  bool ok = true;
  for (cu::Event &event : events)
    ok = api.EventCreate(&event, cu::EventDefault) == cu::Success && ok;
  float milliseconds = 0;
  if (ok) {
    api.EventRecord(events[0], stream);
    ok = enqueue();
    api.EventRecord(events[1], stream);
    ok = waitForEvent(events[1], "measuring") == MPT_OK && ok &&
         api.EventElapsedTime(&milliseconds, events[0], events[1]) == cu::Success;
  }
  for (cu::Event event : events)
    if (event)
      api.EventDestroy_v2(event);
  return ok ? milliseconds : -1;
}

cu::GraphExec CudaDevice::record(int count, const std::function<bool()> &enqueue) {
  if (api.StreamBeginCapture_v2(stream, cu::CaptureThreadLocal) != cu::Success)
    return nullptr;
  bool ok = true;
  capturing = true;
  for (int i = 0; ok && i < count; ++i)
    ok = enqueue();
  capturing = false;
  cu::Graph recorded = nullptr;
  cu::GraphExec graph = nullptr;
  ok = api.StreamEndCapture(stream, &recorded) == cu::Success && ok;
  if (!ok || api.GraphInstantiateWithFlags(&graph, recorded, 0) != cu::Success)
    graph = nullptr;
  if (recorded)
    api.GraphDestroy(recorded);
  return graph;
}

mpt_status CudaDevice::capture(const std::function<mpt_status()> &work, cu::GraphExec &out) {
  constexpr const char *what = "recording the graph of a step";
  out = nullptr;
  if (mpt_status status = cu::check(api, api.StreamBeginCapture_v2(stream, cu::CaptureThreadLocal), what))
    return status;
  capturing = true;
  mpt_status status = work();
  capturing = false;
  cu::Graph recorded = nullptr;
  cu::Result result = api.StreamEndCapture(stream, &recorded);
  if (!status && result == cu::Success)
    result = api.GraphInstantiateWithFlags(&out, recorded, 0);
  if (recorded)
    api.GraphDestroy(recorded);
  if (status || result != cu::Success)
    out = nullptr;
  return status ? status : cu::check(api, result, what);
}

float CudaDevice::fastest(int rounds, const std::function<bool()> &enqueue) {
  constexpr float longEnough = 1; // ms
  constexpr int mostRepeats = 20;
  float best = timeOnce(enqueue) >= 0 ? timeOnce(enqueue) : -1;
  int repeats = 1;
  cu::GraphExec graph = nullptr;
  if (best >= 0 && best < longEnough) {
    repeats = std::clamp(static_cast<int>(longEnough / std::max(best, longEnough / mostRepeats)), 1, mostRepeats);
    graph = record(repeats, enqueue);
    best = graph ? mostRepeats * longEnough : best; // launched one by one it counts no more
  }
  for (int round = graph ? 0 : 1; best >= 0 && round < rounds; ++round) {
    const float time =
        graph ? timeOnce([&] { return api.GraphLaunch(graph, stream) == cu::Success; }) / static_cast<float>(repeats)
              : timeOnce(enqueue);
    best = time < 0 ? -1 : std::min(best, time);
  }
  if (graph)
    api.GraphExecDestroy(graph);
  return best;
}

float CudaDevice::meanOf(int count, const std::function<bool()> &enqueue) {
  cu::GraphExec graph = record(count, enqueue);
  auto all = [&] {
    if (graph)
      return api.GraphLaunch(graph, stream) == cu::Success;
    bool works = true;
    for (int i = 0; works && i < count; ++i)
      works = enqueue();
    return works;
  };
  // The first launch of a graph brings it to the device.
  const float time = timeOnce(all) >= 0 ? timeOnce(all) : -1;
  if (graph)
    api.GraphExecDestroy(graph);
  return time < 0 ? time : time / static_cast<float>(count);
}

float CudaDevice::timeOfPass(int64_t bytes) {
  constexpr int64_t most = 64 << 20;
  const int64_t piece = std::min(most, std::max<int64_t>(bytes / 2, 1)); // read, and as much written
  uint8_t *data = scratch(2 * most);
  if (!data)
    return -1;
  const float time = fastest(2, [&] {
    return api.MemcpyDtoDAsync_v2(address(data + most), address(data), static_cast<size_t>(piece), stream) ==
           cu::Success;
  });
  return time < 0 ? -1 : time * static_cast<float>(bytes) / static_cast<float>(2 * piece);
}

int64_t CudaDevice::kernelNumber(const char *wanted) const {
  for (int64_t i = 0; i < module.num_kernels; ++i)
    if (strcmp(module.kernels[i].name, wanted) == 0)
      return i;
  return -1;
}

mpt_status CudaDevice::launch(int64_t kernel, void *const *args, const int64_t *grid) {
  if (kernel < 0 || kernel >= module.num_kernels)
    return fail(MPT_INTERNAL, "expected a kernel below %lld, got %lld", static_cast<long long>(module.num_kernels),
                static_cast<long long>(kernel));
  const mpt_kernel_desc &k = module.kernels[kernel];
  std::vector<void *> parameters(static_cast<size_t>(k.num_args));
  for (size_t i = 0; i < parameters.size(); ++i)
    parameters[i] = const_cast<void **>(&args[i]);
  auto extent = [](int64_t n) { return static_cast<unsigned>(n); };
  if (!grid)
    grid = k.grid;
  return cu::check(api,
                   api.LaunchKernel(kernels[static_cast<size_t>(kernel)], extent(grid[0]), extent(grid[1]),
                                    extent(grid[2]), extent(k.block[0]), extent(k.block[1]), extent(k.block[2]),
                                    extent(k.shared_bytes), present, parameters.data(), nullptr),
                   k.name);
}
