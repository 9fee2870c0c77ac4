// SPDX-License-Identifier: Apache-2.0
// A global step: local replicas, reduction, agreement, update.
#include "core/Replicas.h"

#include "core/DeviceStep.h"
#include "core/HostMemory.h"
#include "core/Indices.h"
#include "core/Json.h"
#include "core/KeptValues.h"
#include "core/SafeTensors.h"
#include "core/Trainer.h"
#include "core/Types.h"
#include "world/Collectives.h"
#include "world/Reduction.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

/// Numbers that ranks compare in a step: the largest of each, and of its negative, are the same number where all agree.
struct Agreement {
  static constexpr int pieces = 3, bitsOfPiece = 22; // whole numbers below 2^24 are exact in FP32
  float refused = 0;                                 // 1 + the highest rank that cannot go on
  float hash[pieces][2] = {};                        // of the shared inputs

  void set(uint64_t value) {
    for (auto &piece : hash) {
      piece[0] = static_cast<float>(value & ((1u << bitsOfPiece) - 1));
      piece[1] = -piece[0];
      value >>= bitsOfPiece;
    }
  }
  bool isSame() const {
    return std::all_of(std::begin(hash), std::end(hash), [](auto &piece) { return piece[0] == -piece[1]; });
  }
};

} // namespace

ReplicatedStep::ReplicatedStep(mpt_trainer &trainer, const ReplicasOfModel &of, std::shared_ptr<World> given)
    : world(given && given->size() > 1 ? std::move(given) : nullptr),
      layout(layoutOf(*trainer.model->desc, of, world.get())), global(*trainer.model->desc, of, layout.local),
      reduction(std::make_unique<Reduction>(world, layout.replicas)), count(static_cast<float>(layout.replicas)) {
  layout.global = &global.desc();
}

ReplicatedStep::~ReplicatedStep() = default;

bool ReplicatedStep::isFirst() const { return !world || world->rank() == 0; }

mpt_status ReplicatedStep::make(mpt_trainer &trainer, mpt_world *world, std::unique_ptr<ReplicatedStep> &out) {
  const mpt_module_desc &module = *trainer.model->desc;
  const ReplicasOfModel *of = trainer.model->replicas.get();
  const int size = world ? world->world->size() : 1;
  if (!of && size > 1)
    return fail(MPT_INVALID_ARGUMENT,
                "model '%s' trains on one process, and the world has %d: compile it with --replicas=V for V batches a "
                "step, or with --replicas=any for one batch a process",
                module.name, size);
  if (!of)
    return MPT_OK;
  if (mpt_status status = checkDivides(module, of->count, size))
    return status;
  std::unique_ptr<ReplicatedStep> made(new ReplicatedStep(trainer, *of, world ? world->world : nullptr));
  if (mpt_status status = made->matchValues(trainer))
    return status;
  if (made->world) {
    if (mpt_status status = made->world->agree("model", module.manifest ? module.manifest : ""))
      return status;
    // Sums of the update, such as the norm of the gradients, are split by threads.
    if (mpt_status status = made->world->agree("threads", std::to_string(trainer.threads)))
      return status;
  }
  if (mpt_status status = made->compareStates(trainer, MPT_OK))
    return status;
  out = std::move(made);
  return MPT_OK;
}

mpt_status ReplicatedStep::matchValues(mpt_trainer &trainer) {
  agreement = reduction->declare(sizeof(Agreement) / sizeof(float), Reduction::Kind::Max);
  std::vector<ExchangedValue> found;
  if (mpt_status status = readExchanged(layout, found))
    return status;
  std::unique_ptr<DeviceExchange> exchange;
  if (!trainer.finite) // whose checks wait for every call
    if (mpt_status status = trainer.device->openExchange(world.get(), exchange))
      return status;
  if (exchange) {
    onDevice = std::make_unique<DeviceStep>(trainer, layout, world.get(), std::move(exchange));
    return onDevice->prepare(found);
  }
  for (const ExchangedValue &what : found)
    if (mpt_status status = addValue(what))
      return status;
  kept = std::make_unique<KeptValues>();
  return kept->prepare(*trainer.device, layout);
}

int64_t ReplicatedStep::keptBytes() const { return onDevice ? onDevice->keptBytes() : kept->bytes(); }

mpt_status ReplicatedStep::addValue(const ExchangedValue &what) {
  Value value(what);
  const bool scatters = what.how == ExchangedValue::Scatter;
  if (what.how != ExchangedValue::Gather)
    value.bucket =
        reduction->declare(what.elements, what.how == ExchangedValue::Max ? Reduction::Kind::Max : Reduction::Kind::Sum,
                           scatters ? Reduction::Result::Shard : Reduction::Result::All, what.dtype);
  value.total = allocateHost(scatters ? what.part * layout.local : what.all);
  if (!value.total)
    return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of '%s'", static_cast<long long>(what.all), what.name);
  values.push_back(std::move(value));
  return MPT_OK;
}

mpt_status ReplicatedStep::compareStates(mpt_trainer &trainer, mpt_status own) {
  if (!world)
    return own;
  std::unique_ptr<Memory> copy;
  const uint8_t *state = nullptr;
  if (!own)
    own = hostState(trainer, copy, state);
  const std::string why = own ? mpt_last_error() : "";
  mpt_status agreed = world->agree(
      "state", own ? "no state: " + why : "checksum " + checksumOfState(trainer, state) + trainer.checksumOfShards);
  return own ? fail(own, "%s", why.c_str()) : agreed;
}

mpt_status ReplicatedStep::followFirst(mpt_status own) {
  if (!world)
    return own;
  auto status = static_cast<int32_t>(own);
  std::string why = own ? mpt_last_error() : "";
  if (mpt_status lost = world->broadcast(0, &status, sizeof status))
    return lost;
  if (!isFirst() && status)
    return fail(static_cast<mpt_status>(status), "rank 0 failed, and with it all ranks: its own message says why");
  return own ? fail(own, "%s", why.c_str()) : MPT_OK;
}

mpt_status ReplicatedStep::contribute(Value &value, const void *data) {
  if (value.how != ExchangedValue::Gather)
    return reduction->contribute(value.bucket, value.given++, data);
  memcpy(value.total->start + (layout.first + value.given++) * value.part, data, static_cast<size_t>(value.part));
  return value.given == layout.local && world ? startGather(value) : MPT_OK;
}

/// Starts the exchange of rows that this process has put in their places.
mpt_status ReplicatedStep::startGather(Value &value) {
  Tag tag;
  tag.kind = Tag::Gather;
  tag.step = steps;
  value.ticket = world->start(
      tag, [total = value.total, bytes = value.part * layout.local](Communicator &communicator, const Tag &tag) {
        return gatherAcross(communicator, tag, -1, total->start + communicator.rank * bytes, bytes, total->start);
      });
  return MPT_OK;
}

/// Waits for the exchanged values that `phase` is the first to take: the others may still travel.
mpt_status ReplicatedStep::receiveFor(size_t phase) {
  for (Value &value : values) {
    if (value.taken != phase)
      continue;
    mpt_status status = MPT_OK;
    if (value.how != ExchangedValue::Gather)
      status = reduction->receive(value.bucket, reinterpret_cast<float *>(value.total->start));
    else if (value.ticket)
      status = world->wait(value.ticket);
    value.ticket = 0;
    if (status)
      return status;
  }
  return MPT_OK;
}

void ReplicatedStep::ready(int64_t output) {
  // In the order of the table, the same on all ranks, also on one that fails and contributes nothing.
  for (Value &value : values)
    value.complete |= value.phase == 0 && value.output == output;
  for (Value &value : values) {
    if (value.phase > 0 || value.given > present)
      continue;
    if (!value.complete)
      return;
    if (!early)
      early = contribute(value, running->outputPointers[static_cast<size_t>(value.output)]);
  }
}

const mpt_tensor *ReplicatedStep::callersTensor(const std::vector<const mpt_tensor *> &given, const char *name) const {
  return given[static_cast<size_t>(indexOf(global.desc().inputs, global.desc().num_inputs, name))];
}

/// The inputs of a phase for local replica `k`: the caller's, values exchanged or kept before, and its number.
mpt_status ReplicatedStep::bind(size_t phase, const std::vector<const mpt_tensor *> &given, int64_t k,
                                std::vector<mpt_tensor> &out) {
  const mpt_function_desc &f = *layout.phases[phase];
  number = layout.first + k;
  for (int64_t i = 0; i < f.num_inputs; ++i) {
    const mpt_tensor_desc &want = f.inputs[i];
    mpt_tensor input = viewOf(want, want.role == MPT_ROLE_REPLICA_NUMBER ? static_cast<void *>(&number) : &count);
    if (isExchanged(want)) {
      auto value = std::find_if(values.begin(), values.end(),
                                [&](const Value &v) { return v.phase < phase && strcmp(v.name, want.name) == 0; });
      if (value == values.end())
        return fail(MPT_BAD_FILE, "'%s' takes '%s', which no function before it makes", f.name, want.name);
      input.data = value->total->start + (want.role == MPT_ROLE_SCATTER ? k * value->part : 0);
    } else if (isKept(want)) {
      input.data = kept->find(want.name, k);
    } else if (!isOwn(want)) {
      const mpt_tensor *whole = callersTensor(given, want.name);
      if (!whole)
        continue; // a learning rate that the trainer knows
      input.data = static_cast<uint8_t *>(whole->data) + (layout.split.count(want.name) ? k * want.bytes : 0);
    }
    out.push_back(input);
  }
  return MPT_OK;
}

/// Runs one local replica; its values are contributed as soon as they are complete.
mpt_status ReplicatedStep::runReplica(mpt_trainer &trainer, size_t phase, const std::vector<const mpt_tensor *> &given,
                                      int64_t k) {
  const mpt_function_desc &f = *layout.phases[phase];
  FunctionState &state = stateOf(trainer, f);
  std::vector<mpt_tensor> mine;
  if (mpt_status status = bind(phase, given, k, mine))
    return status;
  if (mpt_status status = prepareFunction(trainer, f))
    return status;
  kept->place(phase, k, state.outputPointers);
  running = &state;
  present = k;
  early = MPT_OK;
  for (Value &value : values)
    value.complete = false;
  state.context.listener = trainer.device->sharesHostMemory() ? this : nullptr;
  mpt_status status = runFunction(trainer, f, mine.data(), static_cast<int64_t>(mine.size()), nullptr, k);
  state.context.listener = nullptr;
  if (status == MPT_NOT_FINITE &&
      state.ran) { // found by the checks of --debug-nonfinite; the step goes on, and skips everywhere
    if (phase == 0 || notFinite.empty())
      notFinite = mpt_last_error();
    status = MPT_OK;
  }
  if (!status)
    status = early;
  for (Value &value : values)
    if (!status && value.phase == phase && value.given == k) { // of a device, which says nothing while it runs
      void *data = nullptr;
      status = hostOutput(trainer, f, state, value.output, data);
      if (!status)
        status = contribute(value, data);
    }
  return status;
}

/// The phases between the first and the last. A rank that fails lets the others wait, or has changed some of its
/// shards: nobody can go on.
mpt_status ReplicatedStep::runShards(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given) {
  mpt_status status = receiveFor(1);
  for (size_t phase = 1; !status && phase + 1 < layout.phases.size(); ++phase) {
    for (int64_t k = 0; !status && k < layout.local; ++k)
      status = runReplica(trainer, phase, given, k);
    if (!status)
      status = receiveFor(phase + 1);
  }
  if (status && status != MPT_PEER_LOST && world && layout.phases.size() > 2) {
    const std::string why = mpt_last_error();
    world->abandon(why.c_str());
    fail(status, "%s", why.c_str());
  }
  return status;
}

/// Keeps the others from waiting for values that this rank cannot compute.
void ReplicatedStep::contributeNothing() {
  const std::string why = mpt_last_error();
  int64_t most = 0;
  for (const Value &value : values)
    if (value.phase == 0)
      most = std::max(most, layout.phases[0]->outputs[value.output].bytes);
  const std::vector<float> zeros(static_cast<size_t>(most) / sizeof(float) + 1);
  for (int64_t k = 0; k < layout.local; ++k)
    for (Value &value : values)
      if (value.phase == 0 && value.given == k)
        (void)contribute(value, zeros.data());
  fail(MPT_INTERNAL, "%s", why.c_str()); // the caller has the status; this is its text again
}

void ReplicatedStep::edited(const char *what, const void *data, int64_t bytes) {
  edits = checksumOf(data, bytes, checksumOf(what, static_cast<int64_t>(strlen(what)), edits));
}

mpt_status ReplicatedStep::agree(mpt_status own, const std::vector<const mpt_tensor *> &given,
                                 const mpt_trainer &trainer) {
  if (!world)
    return own;
  const std::string why = own ? mpt_last_error() : "";
  Agreement mine;
  mine.refused = own ? static_cast<float>(world->rank() + 1) : 0;
  uint64_t shared = checksumOf(&trainer.learningRate, sizeof trainer.learningRate, edits);
  for (int64_t i = 0; i < global.desc().num_inputs; ++i) {
    const mpt_tensor_desc &input = global.desc().inputs[i];
    bool onHost = false;
    if (const mpt_tensor *tensor = layout.split.count(input.name) ? nullptr : given[static_cast<size_t>(i)])
      if (tensor->data && trainer.device->locate(tensor->data, onHost) == MPT_OK && onHost)
        shared = checksumOf(tensor->data, input.bytes, shared);
  }
  mine.set(shared);
  for (int64_t k = 0; k < layout.local; ++k)
    if (mpt_status status = reduction->contribute(agreement, k, reinterpret_cast<const float *>(&mine)))
      return status;
  Agreement all;
  if (mpt_status status = reduction->receive(agreement, reinterpret_cast<float *>(&all)))
    return status;
  if (own)
    return fail(own, "%s", why.c_str());
  if (all.refused > 0)
    return fail(MPT_INVALID_ARGUMENT,
                "rank %d could not take this step, which its own message explains: no rank has changed its state",
                static_cast<int>(all.refused) - 1);
  if (!all.isSame())
    return fail(MPT_INVALID_ARGUMENT, "expected the same learning rate, shared inputs and parameters set by the "
                                      "caller on every rank, got different ones: no rank has changed its state");
  return MPT_OK;
}

mpt_status ReplicatedStep::update(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given,
                                  mpt_metrics *metrics) {
  std::vector<mpt_tensor> inputs;
  if (mpt_status status = bind(layout.phases.size() - 1, given, 0, inputs))
    return status;
  return runFunction(trainer, *layout.phases.back(), inputs.data(), static_cast<int64_t>(inputs.size()), metrics);
}

/// Nothing that a device has begun can be refused, so that all agree before it begins.
mpt_status ReplicatedStep::runOnDevice(mpt_trainer &trainer, const mpt_tensor *inputs, int64_t count,
                                       mpt_metrics *metrics) {
  std::vector<const mpt_tensor *> given;
  mpt_status status = matchInputs(global.desc(), inputs, count, given);
  if (!status)
    status = onDevice->stage(given);
  if ((status = agree(status, given, trainer)))
    return status;
  return onDevice->run(metrics);
}

/// Memory and indices of all functions but the first, which looks for itself.
mpt_status ReplicatedStep::prepareLater(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given) {
  for (const mpt_function_desc *phase : layout.phases)
    if (mpt_status status = prepareFunction(trainer, *phase))
      return status;
  std::vector<const void *> addresses;
  addresses.reserve(given.size());
  for (const mpt_tensor *tensor : given)
    addresses.push_back(tensor ? tensor->data : nullptr);
  return checkIndicesOf(*trainer.device, layout, 1, addresses);
}

mpt_status ReplicatedStep::run(mpt_trainer &trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics) {
  if (mpt_status status = reduction->begin(++steps))
    return status;
  if (onDevice)
    return runOnDevice(trainer, inputs, count, metrics);
  for (Value &value : values)
    value.given = 0;
  notFinite.clear();
  std::vector<const mpt_tensor *> given;
  mpt_status status = matchInputs(global.desc(), inputs, count, given);
  // Before anything runs: a step that fails on the way cannot be taken back, or lets the other ranks wait.
  if (!status && layout.phases.size() > 2)
    status = prepareLater(trainer, given);
  for (int64_t k = 0; !status && k < layout.local; ++k)
    status = runReplica(trainer, 0, given, k);
  if (status)
    contributeNothing();
  if ((status = agree(status, given, trainer)))
    return status;
  if ((status = runShards(trainer, given)))
    return status;
  status = update(trainer, given, metrics);
  const bool found = !notFinite.empty() && (status == MPT_OK || status == MPT_NOT_FINITE);
  return found ? fail(MPT_NOT_FINITE, "%s", notFinite.c_str()) : status;
}

extern "C" void mpt_rt_ready(mpt_exec *exec, int64_t output) {
  if (OutputListener *listener = static_cast<Context *>(exec->runtime)->listener)
    listener->ready(output);
}
