// SPDX-License-Identifier: Apache-2.0
// The fake driver: modules, kernels and their launches.
#include "Code.h"
#include "Graphs.h"
#include "State.h"

#include "mpt-c/abi.h"

#include <cstring>
#include <map>
#include <memory>
#include <vector>

using namespace mpt::rt;
using namespace standin;

namespace {

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

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void standin_executor(StandInExecutor given) { executor = given; }
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
