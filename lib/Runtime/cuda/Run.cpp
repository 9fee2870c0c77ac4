// SPDX-License-Identifier: Apache-2.0
// Running functions: the first run, the graph of the later ones, profiles.
#include "cuda/Run.h"

#include "core/Profile.h"

#include <cstring>
#include <utility>

using namespace mpt::rt;

FunctionRun &FunctionRun::of(CudaDevice &device, const mpt_function_desc &f, FunctionState &state) {
  if (!state.device)
    state.device = std::make_unique<FunctionRun>(device, f);
  return static_cast<FunctionRun &>(*state.device);
}

FunctionRun::~FunctionRun() {
  ContextScope scope(device);
  dropGraph();
}

void FunctionRun::dropGraph() {
  if (graph)
    device.api.GraphExecDestroy(graph);
  graph = nullptr;
}

mpt_status FunctionRun::runOnce(FunctionState &state, mpt_exec &exec, bool watch) {
  state.context.nextCall = 0;
  state.context.watched = watch;
  device.warming = watch;
  auto status = static_cast<mpt_status>(f.entry(&exec));
  device.warming = state.context.watched = false;
  return status;
}

mpt_status FunctionRun::makePlans(FunctionState &state, mpt_exec &exec) {
  OutputListener *const listener = std::exchange(state.context.listener, nullptr);
  state.context.nextCall = 0;
  device.expecting = true;
  auto status = static_cast<mpt_status>(f.entry(&exec));
  device.expecting = false;
  state.context.listener = listener;
  if (!status)
    device.makePlans();
  return status;
}

mpt_status FunctionRun::profile(FunctionState &state, mpt_exec &exec) {
  const cu::Driver &api = device.api;
  std::vector<void *> marks;
  auto mark = [&] {
    cu::Event event = nullptr;
    api.EventCreate(&event, cu::EventDefault);
    api.EventRecord(event, device.stream);
    marks.push_back(event);
  };
  state.profile->beginRun();
  mark();
  state.context.marks = &marks;
  state.context.ways.clear();
  mpt_status status = runOnce(state, exec, false);
  state.context.marks = nullptr;
  if (!status)
    status = device.synchronize();
  for (size_t i = 1; i < marks.size(); ++i) {
    float milliseconds = 0;
    api.EventElapsedTime(&milliseconds, static_cast<cu::Event>(marks[i - 1]), static_cast<cu::Event>(marks[i]));
    auto [call, way] = state.context.ways[i - 1];
    state.profile->goOnFrom(call);
    state.profile->add(static_cast<double>(milliseconds) / 1000, way);
  }
  for (void *event : marks)
    api.EventDestroy_v2(static_cast<cu::Event>(event));
  state.profile->endRun();
  return status;
}

mpt_status FunctionRun::capture(mpt_exec &exec) {
  static_cast<Context *>(exec.runtime)->nextCall = 0;
  return device.capture([&] { return static_cast<mpt_status>(f.entry(&exec)); }, graph);
}

/// Chooses algorithms and grows scratch, and is watched call by call, so that a kernel that fails is named.
mpt_status FunctionRun::runFirst(FunctionState &state, mpt_exec &exec) {
  if (mpt_status status = hasPlans ? MPT_OK : makePlans(state, exec))
    return status;
  hasPlans = true;
  if (mpt_status status = runOnce(state, exec, true))
    return status;
  device.chosen.write(); // for a process that ends without closing its trainers
  return MPT_OK;
}

/// As a part of a step, which repeats its functions at other addresses and has the graph of them all.
mpt_status FunctionRun::runPart(FunctionState &state, mpt_exec &exec) {
  if (device.capturing)
    return runOnce(state, exec, false);
  if (!ranInStep || device.options.synchronous) {
    if (mpt_status status = runFirst(state, exec))
      return status;
    ranInStep = true;
    return MPT_OK;
  }
  return state.profile ? profile(state, exec) : runOnce(state, exec, false);
}

mpt_status FunctionRun::time(FunctionState &state, mpt_exec &exec, int64_t runs, double &seconds) {
  if (mpt_status status = run(state, exec))
    return status;
  if (mpt_status status = device.synchronize())
    return status;
  const float milliseconds =
      device.meanOf(static_cast<int>(runs), [&] { return runOnce(state, exec, false) == MPT_OK; });
  if (milliseconds < 0) {
    const std::string why = mpt_last_error();
    return fail(MPT_INTERNAL, "'%s' could not be timed: %s", f.name, why.c_str());
  }
  seconds = static_cast<double>(milliseconds) / 1000;
  return MPT_OK;
}

mpt_status FunctionRun::run(FunctionState &state, mpt_exec &exec) {
  if (device.together)
    return runPart(state, exec);
  std::vector<const void *> now{exec.state, exec.shard, exec.arena};
  now.insert(now.end(), exec.inputs, exec.inputs + f.num_inputs);
  now.insert(now.end(), exec.outputs, exec.outputs + f.num_outputs);
  now.push_back(reinterpret_cast<const void *>(device.scratchVersion()));
  if (now != bindings) {
    dropGraph();
    warm = false;
  }
  // The first run is not recorded.
  if (!warm || device.options.synchronous) {
    if (mpt_status status = runFirst(state, exec))
      return status;
    now.back() = reinterpret_cast<const void *>(device.scratchVersion());
    bindings = now;
    warm = true;
    return MPT_OK;
  }
  if (state.profile)
    return profile(state, exec);
  if (device.options.eager || state.context.finite) // checks of values wait for them
    return runOnce(state, exec, false);
  if (!graph && !eager && capture(exec)) {
    eager = true;
    warn("'%s' runs call by call from here on, since its graph could not be recorded: %s", f.name, mpt_last_error());
  }
  if (eager)
    return runOnce(state, exec, false);
  return cu::check(device.api, device.api.GraphLaunch(graph, device.stream), "starting the graph of a step");
}
