// SPDX-License-Identifier: Apache-2.0
// Times of functions and calls, and the device that they were measured on.
#include "core/Error.h"
#include "core/Trainer.h"

#include <cstring>
#include <ctime>

using namespace mpt::rt;

namespace {

constexpr int64_t mostRuns = 1000;

mpt_status timeFunction(mpt_trainer &t, const char *name, const mpt_tensor *inputs, int64_t count, int64_t runs,
                        double &seconds) {
  if (count < 0 || (count > 0 && !inputs))
    return fail(MPT_INVALID_ARGUMENT, "expected inputs, got NULL");
  if (runs < 1 || runs > mostRuns)
    return fail(MPT_INVALID_ARGUMENT, "expected 1 to %lld runs, got %lld", static_cast<long long>(mostRuns),
                static_cast<long long>(runs));
  if (t.replicas && strcmp(name, ReplicatedStep::step) == 0)
    return fail(MPT_UNSUPPORTED, "expected a function of one process to time, got a step with replicas");
  const mpt_function_desc *f = t.model->function(name);
  if (!f)
    return MPT_NOT_FOUND;
  f = t.model->sizes.choose(name, inputs, count, f);
  if (!f)
    return MPT_INVALID_ARGUMENT;
  mpt_exec exec;
  if (mpt_status status = beginRun(t, *f, inputs, count, 0, exec))
    return status;
  FunctionState &state = stateOf(t, *f);
  if (mpt_status status = t.device->time(*f, state, exec, runs, seconds))
    return status;
  state.ran = true;
  return MPT_OK;
}

} // namespace

mpt_status Device::time(const mpt_function_desc &f, FunctionState &state, mpt_exec &exec, int64_t runs,
                        double &seconds) {
  // One thread's own time is the same on a machine that others work on.
  auto now = [&] {
    timespec time{};
    clock_gettime(state.context.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  auto runAll = [&](int64_t times) {
    mpt_status status = MPT_OK;
    for (int64_t i = 0; !status && i < times; ++i) {
      state.context.nextCall = 0;
      status = run(f, state, exec);
    }
    return status ? status : synchronize();
  };
  if (mpt_status status = runAll(1))
    return status;
  const double start = now();
  const mpt_status status = runAll(runs);
  seconds = (now() - start) / static_cast<double>(runs);
  return status;
}

void mpt::rt::warnOfOtherDevice(const mpt_trainer &trainer) {
  const Json *measured = trainer.model->manifest.find("measured");
  const Json *device = measured ? measured->find("device") : nullptr;
  const std::string here = trainer.device->description();
  if (device && device->kind == Json::String && !here.empty() && device->string != here)
    warn("model '%s' has its types by times of '%s'; this is '%s', where others may be faster: measure its products "
         "here",
         trainer.model->desc->name, device->string.c_str(), here.c_str());
}

extern "C" {

mpt_status mpt_trainer_time(mpt_trainer *trainer, const char *function, const mpt_tensor *inputs, int64_t count,
                            int64_t runs, double *seconds) {
  if (!trainer || !function || !seconds)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer, a function and a place for the result, got NULL");
  return guarded([&] { return timeFunction(*trainer, function, inputs, count, runs, *seconds); });
}

mpt_status mpt_trainer_device(mpt_trainer *trainer, const char **name, const char **libraries) {
  if (!trainer || !name || !libraries)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and places for the results, got NULL");
  return guarded([&] {
    trainer->description = trainer->device->description();
    trainer->libraries = trainer->device->libraries();
    *name = trainer->description.c_str();
    *libraries = trainer->libraries.c_str();
    return MPT_OK;
  });
}

mpt_status mpt_trainer_profile(mpt_trainer *trainer, const char **text) {
  if (!trainer || !text)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the text, got NULL");
  return guarded([&] {
    if (mpt_status status = trainer->device->synchronize())
      return status;
    trainer->profiles = trainer->profileTables();
    *text = trainer->profiles.c_str();
    return MPT_OK;
  });
}

} // extern "C"
