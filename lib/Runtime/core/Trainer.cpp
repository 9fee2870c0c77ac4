// SPDX-License-Identifier: Apache-2.0
// Creating trainers, and bringing them back to their first state.
#include "core/Trainer.h"

#include "core/HostMemory.h"
#include "core/Options.h"
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
  fputs(profileTables().c_str(), stderr);
}

std::string mpt_trainer::profileTables() const {
  std::string text;
  for (const FunctionState &f : functions)
    if (f.profile)
      text += f.profile->table(profileRows);
  return text;
}

mpt_status mpt::rt::outOfMemory(const Device &device, const char *what, int64_t bytes, const std::string &largest) {
  return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of %s%s%s", static_cast<long long>(bytes), what,
              device.freeMemory().c_str(), largest.c_str());
}

namespace {

constexpr int mostThreads = 4096;

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
      return mpt_trainer_run(&t, "initialize", nullptr, 0, nullptr);
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
