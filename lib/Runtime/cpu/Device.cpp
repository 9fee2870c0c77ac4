// SPDX-License-Identifier: Apache-2.0
// The CPU as a device: memory is the host's own, functions run when they are called.
#include "core/Device.h"

#include "core/Features.h"
#include "core/HostMemory.h"
#include "core/Trainer.h"

#include <cstring>
#include <fstream>
#include <pthread.h>
#include <string>
#include <thread>

using namespace mpt::rt;

const char *const mpt::rt::targetName = "cpu";

namespace {

constexpr int64_t alignment = 64;
int64_t aligned(int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
bool isAligned(const void *data) { return reinterpret_cast<uintptr_t>(data) % alignment == 0; }

void copyAll(const Transfer *transfers, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (transfers[i].bytes)
      memcpy(transfers[i].to, transfers[i].from, static_cast<size_t>(transfers[i].bytes));
}

// OpenMP keeps a team of threads for each thread that runs loops. A child process has none of them, and its copy of
// that thread would wait for them for ever.
thread_local bool hasRun = false, lostTeam = false;
const int watchesForks = pthread_atfork(nullptr, nullptr, [] { lostTeam = hasRun; });

/// Runs `f` on a thread of its own, which gets a team of its own.
mpt_status runApart(const mpt_function_desc &f, mpt_exec &exec) {
  auto status = MPT_OK;
  std::string why;
  std::thread apart([&] {
    status = static_cast<mpt_status>(f.entry(&exec));
    why = status ? mpt_last_error() : "";
  });
  apart.join();
  return status ? fail(status, "%s", why.c_str()) : MPT_OK;
}

/// As the kernel calls it.
std::string processorName() {
  std::ifstream from("/proc/cpuinfo");
  for (std::string line; std::getline(from, line);)
    if (line.compare(0, 10, "model name") == 0 && line.find(": ") != std::string::npos)
      return line.substr(line.find(": ") + 2);
  return "unknown processor";
}

class CpuDevice : public Device {
public:
  bool sharesHostMemory() const override { return true; }
  std::unique_ptr<Memory> allocate(int64_t bytes) override { return allocateHost(bytes); }
  mpt_status upload(const Transfer *transfers, size_t count) override {
    copyAll(transfers, count);
    return MPT_OK;
  }
  mpt_status download(const Transfer *transfers, size_t count) override {
    copyAll(transfers, count);
    return MPT_OK;
  }
  mpt_status locate(const void *, bool &onHost) override {
    onHost = true;
    return MPT_OK;
  }
  /// Copies unaligned inputs.
  mpt_status stage(const mpt_function_desc &f, FunctionState &state) override {
    int64_t staged = 0;
    for (int64_t k = 0; k < f.num_inputs; ++k)
      if (!isAligned(state.inputPointers[static_cast<size_t>(k)]))
        staged += aligned(f.inputs[k].bytes);
    if (!staged)
      return MPT_OK;
    auto *next = static_cast<uint8_t *>(staging.get(staged));
    if (!next)
      return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of inputs", static_cast<long long>(staged));
    for (int64_t k = 0; k < f.num_inputs; ++k) {
      const void *&given = state.inputPointers[static_cast<size_t>(k)];
      if (isAligned(given))
        continue;
      memcpy(next, given, static_cast<size_t>(f.inputs[k].bytes));
      given = next;
      next += aligned(f.inputs[k].bytes);
    }
    return MPT_OK;
  }
  mpt_status run(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec) override {
    state.context.scratch = &scratch;
    if (state.profile)
      state.profile->beginRun();
    hasRun = true;
    if (mpt_status status = lostTeam ? runApart(f, exec) : static_cast<mpt_status>(f.entry(&exec)))
      return status;
    if (state.profile)
      state.profile->endRun();
    return MPT_OK;
  }
  std::string description() const override { return processorName(); }
  mpt_status synchronize() override { return MPT_OK; }
  int64_t stagingBytes() const override { return staging.size() + scratch.size(); }

private:
  ScratchStack scratch; // of library calls
  Scratch staging;      // unaligned inputs
};

} // namespace

mpt_status mpt::rt::checkMachine(const mpt_module_desc &m, const char *source) {
  std::string missing = missingFeature(m.cpu_features ? m.cpu_features : "");
  if (missing.empty())
    return MPT_OK;
  return fail(MPT_INCOMPATIBLE, "%s: compiled for %s, and this processor lacks '%s': compile it for this one (--mcpu)",
              source, m.cpu, missing.c_str());
}

mpt_status mpt::rt::openDevice(const mpt_module_desc &, int, Options &, std::unique_ptr<Device> &out) {
  out = std::make_unique<CpuDevice>();
  return MPT_OK;
}
