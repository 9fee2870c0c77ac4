// SPDX-License-Identifier: Apache-2.0
// Creating trainers and running their functions.
#include "core/Trainer.h"

#include "core/Convert.h"
#include "core/HostMemory.h"
#include "core/Indices.h"
#include "core/Options.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

using namespace mpt::rt;

mpt_trainer::~mpt_trainer() {
  if (device)
    device->synchronize();
  for (const FunctionState &f : functions)
    if (f.profile)
      fputs(f.profile->table(profileRows).c_str(), stderr);
}

/// True for the scalar that has a default: the trainer's own rate.
static bool isLearningRate(const mpt_tensor_desc &t) {
  return strcmp(t.name, "learning_rate") == 0 && isFloating(t.dtype) && elementsOf(t) == 1;
}

mpt_status mpt::rt::matchInputs(const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                                std::vector<const mpt_tensor *> &out) {
  out.assign(static_cast<size_t>(f.num_inputs), nullptr);
  for (int64_t i = 0; i < count; ++i) {
    const mpt_tensor &given = inputs[i];
    std::string known;
    int64_t k = 0;
    for (; k < f.num_inputs; ++k) {
      if (given.name && strcmp(f.inputs[k].name, given.name) == 0)
        break;
      known += (k ? ", " : "") + std::string(f.inputs[k].name);
    }
    if (k == f.num_inputs)
      return fail(MPT_INVALID_ARGUMENT, "'%s' has no input '%s' (it has: %s)", f.name, given.name ? given.name : "",
                  known.c_str());
    const mpt_tensor_desc &want = f.inputs[k];
    bool fits = given.dtype == want.dtype && given.rank == want.rank && (given.shape || given.rank == 0);
    for (int64_t d = 0; fits && d < want.rank; ++d)
      fits = given.shape[d] == want.shape[d];
    if (!fits)
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected %s, got %s", want.name, f.name,
                  describe(want.dtype, want.rank, want.shape).c_str(),
                  describe(given.dtype, given.shape ? std::clamp(given.rank, 0, 32) : 0, given.shape).c_str());
    if (!given.data && want.bytes)
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected data, got NULL", want.name, f.name);
    if (out[static_cast<size_t>(k)])
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s' is given twice", want.name, f.name);
    out[static_cast<size_t>(k)] = &given;
  }
  for (int64_t k = 0; k < f.num_inputs; ++k)
    if (!out[static_cast<size_t>(k)] && !isLearningRate(f.inputs[k]))
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s' is missing: expected %s", f.inputs[k].name, f.name,
                  describe(f.inputs[k].dtype, f.inputs[k].rank, f.inputs[k].shape).c_str());
  return MPT_OK;
}

namespace {

constexpr int mostThreads = 4096;

mpt_status outOfMemory(const Device &device, const char *what, int64_t bytes, const std::string &largest = "") {
  return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of %s%s%s", static_cast<long long>(bytes), what,
              device.freeMemory().c_str(), largest.c_str());
}

mpt_status outOfState(const Device &device, const mpt_module_desc &m, int64_t bytes) {
  constexpr size_t named = 5;
  std::vector<const mpt_tensor_desc *> tensors;
  tensors.reserve(static_cast<size_t>(m.num_state));
  for (int64_t i = 0; i < m.num_state; ++i)
    tensors.push_back(&m.state[i]);
  std::sort(tensors.begin(), tensors.end(), [](auto *a, auto *b) { return a->bytes > b->bytes; });
  std::string largest;
  for (size_t i = 0; i < tensors.size() && i < named; ++i)
    largest +=
        (i ? ", " : "; its largest tensors: ") + std::to_string(tensors[i]->bytes) + " for '" + tensors[i]->name + "'";
  return outOfMemory(device, "state", bytes, largest);
}

/// Names the largest buffers of the scratch.
mpt_status outOfScratch(const Device &device, const mpt_function_desc &f) {
  std::string largest;
  for (int64_t i = 0; i < f.num_buffers; ++i)
    largest += (i ? ", " : "; the largest buffers of its plan: ") + std::to_string(f.buffers[i].bytes) + " for " +
               f.buffers[i].what + " of '" + f.buffers[i].node + "'";
  return outOfMemory(device, (std::string("scratch of '") + f.name + "'").c_str(), f.arena_bytes, largest);
}

mpt_status create(mpt_model *model, const mpt_trainer_options &options, mpt_trainer **out) {
  const mpt_module_desc &m = *model->model->desc;
  if (options.threads < 0 || options.threads > mostThreads)
    return fail(MPT_INVALID_ARGUMENT, "expected 0 to %d threads, got %d", mostThreads, options.threads);
  auto trainer = std::make_unique<mpt_trainer>();
  trainer->model = model->model;
  trainer->threads = options.threads > 0 ? options.threads : threadsOf(nullptr);
  const Json &manifest = model->model->manifest;
  const Json *optimizer = manifest.find("optimizer"), *rate = manifest.find("learning_rate");
  if (!rate && optimizer)
    rate = optimizer->find("learning_rate");
  const Json *checks = manifest.find("debug_nonfinite");
  const bool finite = checks && checks->kind == Json::Bool && checks->integer;
  if (rate && rate->kind == Json::Number) {
    trainer->learningRate = rate->number;
    trainer->hasLearningRate = true;
  }
  Options further;
  int64_t rows = 0;
  if (mpt_status status = further.read(options))
    return status;
  if (mpt_status status = further.number("profile", 0, rows))
    return status;
  if (mpt_status status = further.number("skip_limit", 0, trainer->stall.limit))
    return status;
  trainer->profileRows = static_cast<int>(rows == 1 ? 40 : std::min<int64_t>(rows, INT32_MAX));
  if (mpt_status status = openDevice(m, options.device, further, trainer->device))
    return status;
  if (mpt_status status = further.finish())
    return status;
  warnOfOtherDevice(*trainer);
  if (finite)
    trainer->finite = std::make_unique<FiniteCheck>(*trainer->device);
  if (mpt_status status = trainer->shards.read(m, manifest, options.world ? options.world->world.get() : nullptr))
    return status;
  if (!trainer->state.allocate(*trainer->device, trainer->shards.blockBytes()))
    return outOfState(*trainer->device, m, trainer->shards.blockBytes());
  trainer->comparesStates = options.world && options.world->world->size() > 1;
  trainer->functions = std::vector<FunctionState>(static_cast<size_t>(m.num_functions));
  for (int64_t i = 0; i < m.num_functions; ++i) {
    Context &context = trainer->functions[static_cast<size_t>(i)].context;
    context.threads = trainer->threads;
    context.sites.resize(static_cast<size_t>(std::max<int64_t>(m.functions[i].call_sites, 0)));
    context.device = trainer->device.get();
    context.function = &m.functions[i];
    context.finite = trainer->finite.get();
    if (trainer->profileRows > 0 && m.functions[i].num_calls > 0)
      trainer->functions[static_cast<size_t>(i)].profile = // a device's work takes no time of the processor
          std::make_unique<Profile>(m.functions[i], trainer->device->sharesHostMemory() ? trainer->threads : 0);
    context.profile = trainer->functions[static_cast<size_t>(i)].profile.get();
  }
  for (int64_t i = 0; i < m.num_state; ++i) {
    trainer->index[m.state[i].name] = i;
    if (m.state[i].role == MPT_ROLE_MASTER)
      trainer->masters[m.state[i].of] = i;
  }
  trainer->hasWeights = options.weights != nullptr;
  if (options.weights)
    trainer->weights = options.weights;
  trainer->setsSeed = options.set_seed != 0;
  trainer->seed = options.seed;
  if (mpt_status status = initializeState(*trainer, options.weights, trainer->setsSeed, trainer->seed))
    return status;
  if (mpt_status status = ReplicatedStep::make(*trainer, options.world, trainer->replicas))
    return status;
  *out = trainer.release();
  return MPT_OK;
}

/// The value of a floating-point scalar.
double scalarOf(const mpt_tensor_desc &t, const void *data) {
  double exact = 0;
  float value = 0;
  if (t.dtype == MPT_FLOAT64)
    memcpy(&exact, data, sizeof exact);
  else
    toFloat(t.dtype, data, 1, &value);
  return t.dtype == MPT_FLOAT64 ? exact : static_cast<double>(value);
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

mpt_status mpt::rt::pointersOf(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state,
                               const std::vector<const mpt_tensor *> &matched) {
  state.inputPointers.assign(static_cast<size_t>(f.num_inputs), nullptr);
  for (int64_t k = 0; k < f.num_inputs; ++k) {
    const mpt_tensor *given = matched[static_cast<size_t>(k)];
    const mpt_tensor_desc &want = f.inputs[k];
    if (!given)
      continue;
    bool onHost = true;
    if (given->data)
      if (mpt_status status = t.device->locate(given->data, onHost))
        return status;
    if (onHost && isLearningRate(want) && !std::isfinite(scalarOf(want, given->data)))
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected a finite number, got %g", want.name, f.name,
                  scalarOf(want, given->data));
    state.inputPointers[static_cast<size_t>(k)] = given->data ? given->data : t.state.data();
  }
  for (int64_t k = 0; k < f.num_inputs; ++k) {
    const void *&given = state.inputPointers[static_cast<size_t>(k)];
    const mpt_tensor_desc &want = f.inputs[k];
    if (given)
      continue;
    if (!t.hasLearningRate)
      return fail(MPT_INVALID_ARGUMENT, "input 'learning_rate' of '%s' is missing and the model has no default",
                  f.name);
    auto rate = static_cast<float>(t.learningRate);
    if (want.dtype == MPT_FLOAT64)
      memcpy(state.learningRate, &t.learningRate, sizeof t.learningRate);
    else
      fromFloat(want.dtype, &rate, 1, state.learningRate);
    if (!std::isfinite(scalarOf(want, state.learningRate)))
      return fail(MPT_INVALID_ARGUMENT, "input 'learning_rate' of '%s': expected a rate within the range of %s, got %g",
                  f.name, nameOf(want.dtype), t.learningRate);
    given = state.learningRate;
  }
  return MPT_OK;
}

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

mpt_status reset(mpt_trainer &t) {
  // Work on the device may still read the state.
  if (mpt_status status = t.device->synchronize())
    return status;
  const char *weights = t.hasWeights ? t.weights.c_str() : nullptr;
  // Where the state is filled in place, a file that ends in the middle must not leave half of it.
  std::unique_ptr<Memory> before;
  if (t.device->sharesHostMemory()) {
    before = allocateHost(t.state.bytes());
    if (!before)
      return outOfMemory(*t.device, "state", t.state.bytes());
    memcpy(before->start, t.state.data(), static_cast<size_t>(t.state.bytes()));
  }
  if (mpt_status status = initializeState(t, weights, t.setsSeed, t.seed)) {
    if (before)
      memcpy(t.state.data(), before->start, static_cast<size_t>(t.state.bytes()));
    return status;
  }
  before.reset();
  if (t.replicas)
    t.replicas->edited("reset", nullptr, 0);
  const mpt_module_desc &m = *t.model->desc;
  for (int64_t i = 0; i < m.num_functions; ++i)
    if (strcmp(m.functions[i].name, "initialize") == 0)
      return run(t, "initialize", nullptr, 0, nullptr);
  return MPT_OK;
}

} // namespace

extern "C" {

mpt_status mpt_trainer_create(mpt_model *model, const mpt_trainer_options *options, mpt_trainer **out) {
  if (!model || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a model and a place for the result, got NULL");
  *out = nullptr;
  mpt_trainer_options defaults{};
  return guarded([&] { return create(model, options ? *options : defaults, out); });
}

void mpt_trainer_destroy(mpt_trainer *trainer) { delete trainer; }

mpt_status mpt_trainer_reset(mpt_trainer *trainer) {
  if (!trainer)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer, got NULL");
  return guarded([&] { return reset(*trainer); });
}

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

mpt_status mpt_trainer_synchronize(mpt_trainer *trainer) {
  if (!trainer)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer, got NULL");
  return guarded([&] { return trainer->device->synchronize(); });
}

mpt_status mpt_trainer_set_learning_rate(mpt_trainer *trainer, double learning_rate) {
  if (!trainer)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer, got NULL");
  if (!std::isfinite(learning_rate))
    return fail(MPT_INVALID_ARGUMENT, "expected a finite learning rate, got %g", learning_rate);
  trainer->learningRate = learning_rate;
  trainer->hasLearningRate = true;
  return MPT_OK;
}

mpt_status mpt_trainer_learning_rate(const mpt_trainer *trainer, double *out) {
  if (!trainer || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  if (!trainer->hasLearningRate)
    return fail(MPT_NOT_FOUND, "no learning rate was set, and the model has no default");
  *out = trainer->learningRate;
  return MPT_OK;
}

mpt_status mpt_trainer_memory(const mpt_trainer *trainer, mpt_memory *out) {
  if (!trainer || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  *out = {trainer->state.bytes(), trainer->arena.bytes(), 0, trainer->device->stagingBytes()};
  for (const FunctionState &f : trainer->functions)
    out->output_bytes += f.outputs.bytes();
  if (trainer->replicas)
    out->output_bytes += trainer->replicas->keptBytes();
  return MPT_OK;
}

} // extern "C"
