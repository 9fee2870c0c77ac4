// SPDX-License-Identifier: Apache-2.0
// Runs of a trainer's functions: inputs, results and metrics, and steps that are skipped again and again.
#include "core/Convert.h"
#include "core/Indices.h"
#include "core/Trainer.h"
#include "core/Types.h"

#include <cmath>
#include <cstring>
#include <vector>

using namespace mpt::rt;

namespace {

/// Names the largest buffers of the scratch.
mpt_status outOfScratch(const Device &device, const mpt_function_desc &f) {
  std::string largest;
  for (int64_t i = 0; i < f.num_buffers; ++i)
    largest += (i ? ", " : "; the largest buffers of its plan: ") + std::to_string(f.buffers[i].bytes) + " for " +
               f.buffers[i].what + " of '" + f.buffers[i].node + "'";
  return outOfMemory(device, (std::string("scratch of '") + f.name + "'").c_str(), f.arena_bytes, largest);
}

/// Finds the caller's tensor for every input of the function, checks it, and copies unaligned ones.
mpt_status bindInputs(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state, const mpt_tensor *inputs,
                      int64_t count) {
  std::vector<const mpt_tensor *> matched;
  if (mpt_status status = matchInputs(f, inputs, count, matched))
    return status;
  if (mpt_status status = pointersOf(t, f, state, matched))
    return status;
  if (mpt_status status = checkIndices(*t.device, f, state.inputPointers))
    return status;
  return t.device->stage(f, state);
}

mpt_status bindOutputs(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state) {
  if (!state.outputPointers.empty() || f.num_outputs == 0)
    return MPT_OK;
  // Values that replicas keep have places of their own, one a replica.
  auto bytesOf = [](const mpt_tensor_desc &output) {
    return isKept(output) ? 0 : roundUp(output.bytes, valueAlignment);
  };
  int64_t bytes = 0;
  for (int64_t i = 0; i < f.num_outputs; ++i)
    bytes += bytesOf(f.outputs[i]);
  if (!state.outputs.allocate(*t.device, bytes))
    return outOfMemory(*t.device, "results", bytes);
  uint8_t *next = state.outputs.data();
  for (int64_t i = 0; i < f.num_outputs; ++i) {
    state.outputPointers.push_back(next);
    next += bytesOf(f.outputs[i]);
  }
  return MPT_OK;
}

/// The metrics that `f` computes, brought from the device together.
mpt_status readMetrics(mpt_trainer &t, const mpt_function_desc &f, const FunctionState &state, mpt_metrics &out) {
  static constexpr int64_t roles[] = {MPT_ROLE_LOSS, MPT_ROLE_LOSS_SCALE, MPT_ROLE_GRAD_NORM, MPT_ROLE_SKIPPED};
  double values[4] = {NAN, 1, NAN, 0};
  const mpt_tensor_desc *found[4] = {};
  alignas(8) uint8_t bytes[4][8];
  Transfer transfers[4];
  size_t count = 0;
  for (int64_t i = 0; i < f.num_outputs; ++i)
    for (int m = 0; m < 4; ++m)
      if (f.outputs[i].role == roles[m] && elementsOf(f.outputs[i]) == 1) {
        found[m] = &f.outputs[i];
        transfers[count++] = {bytes[m], state.outputPointers[static_cast<size_t>(i)], f.outputs[i].bytes};
      }
  if (mpt_status status = t.device->download(transfers, count))
    return status;
  for (int m = 0; m < 4; ++m) {
    float value = 0;
    if (found[m] && found[m]->dtype == MPT_FLOAT64) {
      memcpy(&values[m], bytes[m], sizeof(double));
    } else if (found[m]) {
      toFloat(found[m]->dtype, bytes[m], 1, &value);
      values[m] = static_cast<double>(value);
    }
  }
  out = {values[0], values[1], values[2], values[3] != 0};
  return MPT_OK;
}

mpt_status run(mpt_trainer &t, const char *name, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);

/// Where the state of the step changes: in the part of a step of replicas that all processes share.
bool isStep(const mpt_trainer &t, const mpt_function_desc &f) {
  return t.model->sizes.nameOf(f) == (t.replicas ? ReplicatedStep::combine : ReplicatedStep::step);
}

/// Runs "gradients" on the step that was just skipped, for a gradient that is not finite. Random states, and the
/// caller's results of "gradients", are restored.
mpt_status nameGradient(mpt_trainer &t, const mpt_tensor *inputs, int64_t count, std::string &cause) {
  const mpt_module_desc &m = *t.model->desc;
  const mpt_function_desc *f = nullptr;
  for (int64_t i = 0; i < m.num_functions; ++i)
    if (strcmp(m.functions[i].name, "gradients") == 0)
      f = &m.functions[i];
  if (!f)
    return MPT_OK;
  std::vector<mpt_tensor> taken;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t k = 0; k < f->num_inputs; ++k)
      if (strcmp(f->inputs[k].name, inputs[i].name) == 0)
        taken.push_back(inputs[i]);
  f = t.model->sizes.choose("gradients", taken.data(), static_cast<int64_t>(taken.size()), f);
  if (!f)
    return MPT_INVALID_ARGUMENT;
  std::vector<std::vector<uint8_t>> kept;
  std::vector<Transfer> down, up;
  auto keep = [&](uint8_t *data, int64_t bytes) {
    kept.emplace_back(static_cast<size_t>(bytes));
    down.push_back({kept.back().data(), data, bytes});
    up.push_back({data, kept.back().data(), bytes});
  };
  for (int64_t i = 0; i < m.num_state; ++i)
    if (m.state[i].role == MPT_ROLE_RNG)
      keep(t.at(i), m.state[i].bytes);
  FunctionState &state = stateOf(t, *f);
  const bool ran = state.ran;
  if (ran)
    keep(state.outputs.data(), state.outputs.bytes());
  auto last = t.last;
  if (mpt_status status = t.device->download(down.data(), down.size()))
    return status;
  mpt_status status = runFunction(t, *f, taken.data(), static_cast<int64_t>(taken.size()), nullptr);
  if (status == MPT_OK)
    status = nameNonfinite(t, *f, state, cause);
  const mpt_status restored = t.device->upload(up.data(), up.size());
  state.ran = ran;
  state.copied = false;
  t.last = last;
  return status ? status : restored;
}

/// MPT_STALLED once too many steps in a row were skipped at a scale that does not fall.
mpt_status watch(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state, const mpt_tensor *inputs,
                 int64_t count, const mpt_metrics &read) {
  if (!isStep(t, f) || state.watched)
    return MPT_OK;
  state.watched = true;
  if (!t.stall.add(read))
    return MPT_OK;
  std::string cause;
  if (mpt_status status = nameNonfinite(t, f, state, cause))
    return status;
  if (cause.empty() && inputs && !t.replicas)
    if (mpt_status status = nameGradient(t, inputs, count, cause))
      return status;
  return fail(
      MPT_STALLED,
      "%lld steps in a row were skipped, the last ones at a loss scale of %g, which does not fall any more: %s; "
      "`mpt-run MODEL --blame`, or a library compiled with --debug-nonfinite, names the node",
      static_cast<long long>(t.stall.skipped()), read.loss_scale,
      cause.empty() ? "a gradient is not finite" : cause.c_str());
}

mpt_status run(mpt_trainer &t, const char *name, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics) {
  if (count < 0 || (count > 0 && !inputs))
    return fail(MPT_INVALID_ARGUMENT, "expected inputs, got NULL");
  if (t.replicas && strcmp(name, ReplicatedStep::step) == 0)
    return t.replicas->run(t, inputs, count, metrics);
  const mpt_function_desc *f = t.model->function(name);
  if (!f)
    return MPT_NOT_FOUND;
  f = t.model->sizes.choose(name, inputs, count, f);
  return f ? runFunction(t, *f, inputs, count, metrics) : MPT_INVALID_ARGUMENT;
}

/// The function that made the results of `name`, of several sizes the one that ran last; null after an error.
const mpt_function_desc *functionOfResults(mpt_trainer &t, const char *name) {
  if (auto found = name && !t.replicas ? t.last.find(name) : t.last.end(); found != t.last.end())
    return found->second;
  return t.model->function(name && t.replicas && strcmp(name, ReplicatedStep::step) == 0 ? ReplicatedStep::combine
                                                                                         : name);
}

} // namespace

mpt_status mpt::rt::prepareFunction(mpt_trainer &t, const mpt_function_desc &f) {
  if (mpt_status status = bindOutputs(t, f, stateOf(t, f)))
    return status;
  if (t.arena.bytes() < f.arena_bytes && !t.arena.allocate(*t.device, f.arena_bytes))
    return outOfScratch(*t.device, f);
  return MPT_OK;
}

void mpt::rt::startedRun(mpt_trainer &t, const mpt_function_desc &f) {
  FunctionState &state = stateOf(t, f);
  state.ran = state.copied = state.watched = false;
  t.last[t.model->sizes.nameOf(f)] = &f;
}

mpt_status mpt::rt::readRun(mpt_trainer &t, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                            mpt_metrics &out) {
  FunctionState &state = stateOf(t, f);
  if (mpt_status status = readMetrics(t, f, state, out))
    return status;
  if (mpt_status status = t.finite ? t.finite->end(f, state.outputPointers, out.skipped != 0, out.loss_scale) : MPT_OK)
    return status;
  return watch(t, f, state, inputs, count, out);
}

mpt_status mpt::rt::beginRun(mpt_trainer &t, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                             int64_t replica, mpt_exec &exec) {
  FunctionState &state = stateOf(t, f);
  // A run that is refused leaves the results of the last one.
  if (mpt_status status = bindInputs(t, f, state, inputs, count))
    return status;
  if (mpt_status status = prepareFunction(t, f))
    return status;
  startedRun(t, f);
  if (t.finite)
    if (mpt_status status = t.finite->begin(f, state.inputPointers, *t.model->desc, t.shards, t.state.data()))
      return status;
  exec = {t.state.data(),
          t.arena.data(),
          nullptr,
          state.inputPointers.data(),
          state.outputPointers.data(),
          &state.context,
          t.state.data() + t.shards.shift(replica)};
  return MPT_OK;
}

mpt_status mpt::rt::runFunction(mpt_trainer &t, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                                mpt_metrics *metrics, int64_t replica) {
  FunctionState &state = stateOf(t, f);
  mpt_exec exec;
  if (mpt_status status = beginRun(t, f, inputs, count, replica, exec))
    return status;
  if (mpt_status status = t.device->run(f, state, exec))
    return status;
  state.ran = true;
  mpt_metrics own;
  if (!metrics && !t.finite && !t.device->sharesHostMemory()) // nothing waits for the device
    return MPT_OK;
  return readRun(t, f, inputs, count, metrics ? *metrics : own);
}

mpt_status mpt::rt::hostOutput(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state, int64_t i,
                               void *&out) {
  out = state.outputPointers[static_cast<size_t>(i)];
  if (t.device->sharesHostMemory())
    return t.device->synchronize();
  if (!state.copied) {
    state.hostOutputs.resize(static_cast<size_t>(state.outputs.bytes()));
    Transfer whole{state.hostOutputs.data(), state.outputs.data(), state.outputs.bytes()};
    if (mpt_status status = t.device->download(&whole, 1))
      return status;
    state.copied = true;
  }
  out = state.hostOutputs.data() + (static_cast<uint8_t *>(out) - state.outputs.data());
  return MPT_OK;
}

namespace {

/// A result's tensor: the one called `name`, or the `i`-th where there is no name.
mpt_status output(mpt_trainer &t, const char *function, const char *name, int64_t i, bool onDevice, mpt_tensor &out) {
  const mpt_function_desc *f = functionOfResults(t, function);
  if (!f)
    return MPT_NOT_FOUND;
  FunctionState &state = stateOf(t, *f);
  for (int64_t k = 0; name && k < f->num_outputs; ++k)
    if (strcmp(f->outputs[k].name, name) == 0)
      i = k;
  if (i < 0 || i >= f->num_outputs)
    return name ? fail(MPT_NOT_FOUND, "'%s' has no output '%s'", f->name, name)
                : fail(MPT_NOT_FOUND, "'%s' has %lld outputs", f->name, static_cast<long long>(f->num_outputs));
  if (!state.ran)
    return fail(MPT_INVALID_ARGUMENT, "'%s' has not run", f->name);
  if (isKept(f->outputs[i]))
    return fail(MPT_NOT_FOUND, "'%s' of '%s' is the step's own", f->outputs[i].name, f->name);
  void *data = state.outputPointers[static_cast<size_t>(i)];
  if (!onDevice)
    if (mpt_status status = hostOutput(t, *f, state, i, data))
      return status;
  out = viewOf(f->outputs[i], data);
  return MPT_OK;
}

mpt_status output(mpt_trainer *t, const char *function, const char *name, int64_t i, bool onDevice, mpt_tensor *out) {
  if (!t || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  return guarded([&] { return output(*t, function, name, i, onDevice, *out); });
}

} // namespace

extern "C" {

mpt_status mpt_trainer_run(mpt_trainer *trainer, const char *function, const mpt_tensor *inputs, int64_t count,
                           mpt_metrics *metrics) {
  if (!trainer || !function)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a function, got NULL");
  return guarded([&] { return run(*trainer, function, inputs, count, metrics); });
}

mpt_status mpt_trainer_step(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics) {
  return mpt_trainer_run(trainer, "step", inputs, count, metrics);
}
mpt_status mpt_trainer_gradients(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics) {
  return mpt_trainer_run(trainer, "gradients", inputs, count, metrics);
}
mpt_status mpt_trainer_evaluate(mpt_trainer *trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics) {
  return mpt_trainer_run(trainer, "evaluate", inputs, count, metrics);
}

mpt_status mpt_trainer_output(mpt_trainer *trainer, const char *function, const char *name, mpt_tensor *out) {
  if (!name)
    return fail(MPT_INVALID_ARGUMENT, "expected an output's name, got NULL");
  return output(trainer, function, name, -1, false, out);
}
mpt_status mpt_trainer_output_at(mpt_trainer *trainer, const char *function, int64_t i, mpt_tensor *out) {
  return output(trainer, function, nullptr, i, false, out);
}
mpt_status mpt_trainer_device_output(mpt_trainer *trainer, const char *function, int64_t i, mpt_tensor *out) {
  return output(trainer, function, nullptr, i, true, out);
}

mpt_status mpt_trainer_metrics(mpt_trainer *trainer, const char *function, mpt_metrics *metrics) {
  if (!trainer || !metrics)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  return guarded([&] {
    const mpt_function_desc *f = functionOfResults(*trainer, function);
    if (!f)
      return MPT_NOT_FOUND;
    if (!stateOf(*trainer, *f).ran)
      return fail(MPT_INVALID_ARGUMENT, "'%s' has not run", f->name);
    FunctionState &state = stateOf(*trainer, *f);
    if (mpt_status status = readMetrics(*trainer, *f, state, *metrics))
      return status;
    return watch(*trainer, *f, state, nullptr, 0, *metrics);
  });
}

} // extern "C"
