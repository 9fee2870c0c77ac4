// SPDX-License-Identifier: Apache-2.0
// Folding, exchanging and updating on the device.
#include "core/DeviceStep.h"

#include "core/Types.h"
#include "world/NodeSum.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

constexpr auto floatBytes = static_cast<int64_t>(sizeof(float));

} // namespace

DeviceStep::DeviceStep(mpt_trainer &trainer, const StepLayout &layout, World *world,
                       std::unique_ptr<DeviceExchange> exchange)
    : trainer(trainer), layout(layout), world(world), exchange(std::move(exchange)),
      plan(world ? world->rank() : 0, world ? world->size() : 1, layout.replicas) {
  for (auto &owned : plan.owners) {
    nodes += static_cast<int64_t>(owned.size());
    mostNodes = std::max(mostNodes, static_cast<int64_t>(owned.size()));
  }
}

DeviceStep::~DeviceStep() = default;

mpt_status DeviceStep::place(const void *host, int64_t bytes, Block &to) {
  if (!to.allocate(*trainer.device, bytes))
    return mpt::rt::fail(MPT_OUT_OF_MEMORY, "no memory for the numbers of replicas");
  Transfer whole{to.data(), host, bytes};
  return trainer.device->upload(&whole, 1);
}

mpt_status DeviceStep::prepare(const std::vector<ExchangedValue> &all) {
  std::vector<uint8_t> text(static_cast<size_t>(layout.local * valueAlignment));
  for (int64_t k = 0; k < layout.local; ++k) {
    const int64_t number = layout.first + k;
    memcpy(text.data() + k * valueAlignment, &number, sizeof number);
  }
  const auto replicas = static_cast<float>(layout.replicas);
  if (mpt_status status = place(text.data(), static_cast<int64_t>(text.size()), numbers))
    return status;
  if (mpt_status status = place(&replicas, sizeof replicas, count))
    return status;
  for (const ExchangedValue &what : all) {
    values.emplace_back(what);
    if (mpt_status status = takeMemory(values.back()))
      return status;
  }
  if (mpt_status status = kept.prepare(*trainer.device, layout))
    return status;
  return findSources();
}

mpt_status DeviceStep::takeMemory(Value &value) {
  const ExchangedValue &what = value.what;
  const int64_t elements = what.elements, ranks = plan.ranks;
  auto take = [&](Block &block, int64_t bytes) { return bytes == 0 || block.allocate(*trainer.device, bytes); };
  bool ok = true;
  if (what.how == ExchangedValue::Gather) {
    ok = take(value.slots, what.all);
  } else {
    value.isSmall = elements <= smallElements;
    // Shards end where a replica's row does. A result for all may be cut anywhere, and equal chunks can be gathered.
    value.chunk = what.how == ExchangedValue::Scatter ? elements / ranks : roundUp((elements + ranks - 1) / ranks, 4);
    value.stride = value.isSmall ? elements : value.chunk * ranks;
    ok = take(value.slots, plan.slots * value.stride * floatBytes);
    if (ranks > 1)
      ok =
          ok && take(value.received, (value.isSmall ? ranks * mostNodes * elements : nodes * value.chunk) * floatBytes);
    const bool isNarrow = what.dtype != MPT_FLOAT32;
    ok = ok && (!isNarrow || take(value.wide, elements * floatBytes));
    if (isNarrow && plan.replicas == ranks && !value.isSmall)
      ok = ok && take(value.narrow, value.stride * sizeOf(what.dtype)) &&
           take(value.narrowOthers, value.stride * sizeOf(what.dtype));
  }
  return ok ? MPT_OK
            : mpt::rt::fail(MPT_OUT_OF_MEMORY, "no memory for the exchange of %lld values of '%s'%s",
                            static_cast<long long>(elements), what.name, trainer.device->freeMemory().c_str());
}

mpt_status DeviceStep::findSources() {
  for (size_t phase = 0; phase < layout.phases.size(); ++phase) {
    const mpt_function_desc &f = *layout.phases[phase];
    std::deque<Source> &found = sources.emplace_back();
    for (int64_t i = 0; i < f.num_inputs; ++i) {
      const mpt_tensor_desc &want = f.inputs[i];
      Source &source = found.emplace_back();
      source.value = nullptr;
      source.split = layout.split.count(want.name) != 0;
      auto value = std::find_if(values.begin(), values.end(), [&](const Value &v) {
        return isExchanged(want) && v.what.phase < phase && strcmp(v.what.name, want.name) == 0;
      });
      source.input = indexOf(layout.global->inputs, layout.global->num_inputs, want.name);
      source.kind = value != values.end()                  ? Source::Exchanged
                    : isKept(want)                         ? Source::Kept
                    : want.role == MPT_ROLE_REPLICA_NUMBER ? Source::Number
                    : want.role == MPT_ROLE_REPLICA_COUNT  ? Source::Count
                                                           : Source::Given;
      if (source.kind == Source::Exchanged)
        source.value = &*value;
      else if (source.kind == Source::Given && source.input < 0)
        return mpt::rt::fail(MPT_BAD_FILE, "'%s' takes '%s', which no function before it makes", f.name, want.name);
      const bool moves =
          source.kind == Source::Given && source.split && layout.local > 1 && want.bytes % valueAlignment;
      if (moves && !source.aside.allocate(*trainer.device, want.bytes))
        return mpt::rt::fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of inputs",
                             static_cast<long long>(want.bytes));
    }
  }
  return MPT_OK;
}

mpt_status DeviceStep::stage(const std::vector<const mpt_tensor *> &given) {
  if (mpt_status status = pointersOf(trainer, *layout.global, inputs, given))
    return status;
  if (mpt_status status = checkIndicesOf(*trainer.device, layout, 0, inputs.inputPointers))
    return status;
  // Before anything starts: a step that runs out of memory on the way cannot be taken back.
  for (const mpt_function_desc *f : layout.phases)
    if (mpt_status status = prepareFunction(trainer, *f))
      return status;
  return trainer.device->stage(*layout.global, inputs);
}

const void *DeviceStep::addressOf(const Source &source, const mpt_tensor_desc &want, int64_t k) const {
  switch (source.kind) {
  case Source::Kept:
    return kept.find(want.name, k);
  case Source::Number:
    return numbers.data() + k * valueAlignment;
  case Source::Count:
    return count.data();
  case Source::Exchanged: {
    const ExchangedValue &what = source.value->what;
    return source.value->slots.data() + (what.how == ExchangedValue::Scatter ? (layout.first + k) * what.part : 0);
  }
  case Source::Given:
    break;
  }
  auto *rows = static_cast<const uint8_t *>(inputs.inputPointers[static_cast<size_t>(source.input)]);
  return rows + (source.split ? k * want.bytes : 0);
}

mpt_status DeviceStep::run(mpt_metrics *metrics) {
  std::vector<const void *> bindings{trainer.state.data(), trainer.arena.data()};
  bindings.insert(bindings.end(), inputs.inputPointers.begin(), inputs.inputPointers.end());
  bool eager = false; // profiles measure call by call
  for (const mpt_function_desc *f : layout.phases) {
    const FunctionState &state = stateOf(trainer, *f);
    bindings.insert(bindings.end(), state.outputPointers.begin(), state.outputPointers.end());
    eager = eager || state.profile;
  }
  if (mpt_status status = sharesChoices ? MPT_OK : shareChoices())
    return fail(status);
  if (mpt_status status = exchange->run(bindings, eager, [this] { return enqueue(); }))
    return fail(status);
  for (const mpt_function_desc *f : layout.phases)
    startedRun(trainer, *f);
  const mpt_function_desc &last = *layout.phases.back();
  stateOf(trainer, last).ran = true;
  if (!metrics)
    return MPT_OK;
  if (mpt_status status = readRun(trainer, last, nullptr, 0, *metrics))
    return status == MPT_STALLED ? status : fail(status);
  return MPT_OK;
}

/// A rank that has failed behind the others' agreement has changed some of its state: nobody can go on.
mpt_status DeviceStep::fail(mpt_status status) {
  const std::string why = mpt_last_error();
  exchange->abort();
  if (world && status != MPT_PEER_LOST)
    world->abandon(why.c_str());
  return mpt::rt::fail(status, "%s", why.c_str());
}

mpt_status DeviceStep::enqueue() {
  for (Value &value : values)
    value.given = 0;
  for (phase = 0; phase < layout.phases.size(); ++phase) {
    const bool isLast = phase + 1 == layout.phases.size();
    for (int64_t k = 0; k < (isLast ? 1 : layout.local); ++k)
      if (mpt_status status = runPhase(phase, k))
        return status;
    if (mpt_status status = gatherSmall(phase))
      return status;
  }
  return MPT_OK;
}

/// Runs the functions of a replica that change no state: all but the last, and with shards but the last two.
mpt_status DeviceStep::rehearse() {
  const size_t changing = trainer.shards.any() ? 2 : 1;
  for (size_t i = 0; i + changing < layout.phases.size() || i == 0; ++i)
    if (mpt_status status = start(i, 0, nullptr))
      return status;
  return MPT_OK;
}

/// A device measures which algorithms are fastest. Each rank would come to others, and to other bits: the first one
/// rehearses, and all take its choices. A rehearsal changes no state.
mpt_status DeviceStep::shareChoices() {
  sharesChoices = true;
  if (!world)
    return MPT_OK;
  if (world->rank() == 0)
    if (mpt_status status = exchange->rehearse([this] { return rehearse(); }))
      return status;
  std::string text = world->rank() == 0 ? trainer.device->choices() : "";
  auto length = static_cast<int64_t>(text.size());
  if (mpt_status status = world->broadcast(0, &length, sizeof length))
    return status;
  text.resize(static_cast<size_t>(length));
  if (mpt_status status = world->broadcast(0, text.data(), length))
    return status;
  if (world->rank() != 0)
    trainer.device->takeChoices(text, "rank 0");
  return MPT_OK;
}

/// Puts a function on the device, for local replica `k`.
mpt_status DeviceStep::start(size_t phase, int64_t k, OutputListener *listener) {
  const mpt_function_desc &f = *layout.phases[phase];
  FunctionState &state = stateOf(trainer, f);
  std::vector<const void *> given;
  for (int64_t i = 0; i < f.num_inputs; ++i) {
    const Source &source = sources[phase][static_cast<size_t>(i)];
    const void *at = addressOf(source, f.inputs[i], k);
    if (source.aside.data()) {
      if (mpt_status status = exchange->copy(source.aside.data(), at, f.inputs[i].bytes))
        return status;
      at = source.aside.data();
    }
    given.push_back(at);
  }
  std::vector<void *> outputs = state.outputPointers;
  kept.place(phase, k, outputs);
  mpt_exec exec{trainer.state.data(),
                trainer.arena.data(),
                nullptr,
                given.data(),
                outputs.data(),
                &state.context,
                trainer.state.data() + trainer.shards.shift(k)};
  state.context.listener = listener;
  mpt_status status = trainer.device->run(f, state, exec);
  state.context.listener = nullptr;
  return status;
}

mpt_status DeviceStep::runPhase(size_t phase, int64_t k) {
  for (Value &value : values)
    value.complete = false;
  early = MPT_OK;
  present = k;
  mpt_status status = start(phase, k, this);
  if (!status)
    status = early;
  const FunctionState &state = stateOf(trainer, *layout.phases[phase]);
  for (Value &value : values)
    if (!status && value.what.phase == phase && value.given == k)
      status = contribute(value, state.outputPointers[static_cast<size_t>(value.what.output)]);
  return status;
}

void DeviceStep::ready(int64_t output) {
  // In the order of the table, the same on all ranks.
  for (Value &value : values)
    value.complete |= value.what.phase == phase && value.what.output == output;
  for (Value &value : values) {
    if (value.what.phase != phase || value.given > present)
      continue;
    if (!value.complete)
      return;
    const FunctionState &state = stateOf(trainer, *layout.phases[phase]);
    if (!early)
      early = contribute(value, state.outputPointers[static_cast<size_t>(value.what.output)]);
  }
}

mpt_status DeviceStep::contribute(Value &value, const void *data) {
  const int64_t k = value.given++;
  const ExchangedValue &what = value.what;
  if (what.how == ExchangedValue::Gather)
    return exchange->copy(value.slots.data() + (layout.first + k) * what.part, data, what.part);
  if (mpt_status status = fold(value, plan.leaves[static_cast<size_t>(k)], data))
    return status;
  if (value.given < layout.local || plan.ranks == 1 || value.isSmall || !what.elements)
    return MPT_OK;
  mpt_status status = exchange->aside();
  if (!status)
    status = reduceAcross(value);
  exchange->back();
  return status;
}

/// Adds a local replica's values as the plan says: Reduction::contribute on the device.
mpt_status DeviceStep::fold(Value &value, const ReductionPlan::Leaf &leaf, const void *data) {
  const ExchangedValue &what = value.what;
  const int64_t elements = what.elements;
  const bool sums = what.how != ExchangedValue::Max;
  if (!elements)
    return MPT_OK;
  if (value.narrow.data())
    if (mpt_status status = exchange->copy(value.narrow.data(), data, elements * sizeOf(what.dtype)))
      return status;
  if (what.dtype != MPT_FLOAT32) {
    auto *wide = leaf.merges ? reinterpret_cast<float *>(value.wide.data()) : value.slot(leaf.slot);
    if (mpt_status status = exchange->widen(wide, data, what.dtype, elements))
      return status;
    data = wide;
  }
  if (!leaf.merges)
    return what.dtype == MPT_FLOAT32 ? exchange->copy(value.slot(leaf.slot), data, elements * floatBytes) : MPT_OK;
  float *top = value.slot(leaf.slot - 1);
  mpt_status status = exchange->combine(sums, top, top, static_cast<const float *>(data), elements);
  for (int i = 2; !status && i <= leaf.merges; ++i) {
    float *below = value.slot(leaf.slot - i);
    status = exchange->combine(sums, below, below, top, elements);
    top = below;
  }
  return status;
}

/// The sum of all ranks' nodes, which lie at `nodes` in the plan's order.
mpt_status DeviceStep::sumNodes(Value &value, const std::vector<float *> &nodes, float *out, int64_t elements) {
  mpt_status status = MPT_OK;
  auto combine = [&](float *to, const float *a, const float *b) {
    if (!status)
      status = exchange->combine(value.what.how != ExchangedValue::Max, to, a, b, elements);
  };
  NodeSum<decltype(combine) &> sum(combine);
  size_t next = 0;
  for (auto &owned : plan.owners)
    for (const Leaves &node : owned)
      sum.append(node, nodes[next++]);
  sum.run(plan.replicas, out);
  return status;
}

/// Each rank sends the others their chunks of its nodes, adds up its own of all nodes, and gives that to the others
/// unless it is a shard.
mpt_status DeviceStep::reduceAcross(Value &value) {
  const ExchangedValue &what = value.what;
  const int64_t own = plan.rank * value.chunk, size = sizeOf(what.dtype);
  const bool isNarrow = value.narrow.data() != nullptr;
  std::vector<DeviceMessage> sends, receives;
  std::vector<float *> nodes;
  float *space = reinterpret_cast<float *>(value.received.data());
  for (int peer = 0; peer < plan.ranks; ++peer) {
    auto &theirs = plan.owners[static_cast<size_t>(peer)];
    for (size_t i = 0; i < theirs.size(); ++i) {
      float *at = peer == plan.rank ? value.slot(static_cast<int64_t>(i)) + own : space;
      nodes.push_back(at);
      if (peer == plan.rank)
        continue;
      space += value.chunk;
      if (isNarrow)
        receives.push_back({peer, value.narrowOthers.data() + peer * value.chunk * size, value.chunk, what.dtype});
      else
        receives.push_back({peer, at, value.chunk, MPT_FLOAT32});
    }
    if (peer == plan.rank)
      continue;
    const size_t mine = plan.owners[static_cast<size_t>(plan.rank)].size();
    for (size_t i = 0; i < mine; ++i)
      if (isNarrow)
        sends.push_back({peer, value.narrow.data() + peer * value.chunk * size, value.chunk, what.dtype});
      else
        sends.push_back({peer, value.slot(static_cast<int64_t>(i)) + peer * value.chunk, value.chunk, MPT_FLOAT32});
  }
  if (mpt_status status = exchange->exchange(sends, receives))
    return status;
  for (int peer = 0; isNarrow && peer < plan.ranks; ++peer)
    if (peer != plan.rank)
      if (mpt_status status =
              exchange->widen(nodes[static_cast<size_t>(peer)], value.narrowOthers.data() + peer * value.chunk * size,
                              what.dtype, value.chunk))
        return status;
  if (mpt_status status = sumNodes(value, nodes, value.slot(0) + own, value.chunk))
    return status;
  return what.how == ExchangedValue::Scatter ? MPT_OK
                                             : exchange->gather({{value.slots.data(), value.chunk * floatBytes}});
}

/// Exchanges a phase's gathered values, and small ones, in one group of calls.
mpt_status DeviceStep::gatherSmall(size_t phase) {
  if (plan.ranks == 1)
    return MPT_OK;
  std::vector<DeviceRows> rows;
  for (Value &value : values) {
    if (value.what.phase != phase || !value.what.elements)
      continue;
    if (value.what.how == ExchangedValue::Gather) {
      rows.push_back({value.slots.data(), value.what.part * layout.local});
    } else if (value.isSmall) {
      const int64_t own = mostNodes * value.what.elements * floatBytes;
      const auto mine = static_cast<int64_t>(plan.owners[static_cast<size_t>(plan.rank)].size());
      if (mpt_status status = exchange->copy(value.received.data() + plan.rank * own, value.slots.data(),
                                             mine * value.what.elements * floatBytes))
        return status;
      rows.push_back({value.received.data(), own});
    }
  }
  if (mpt_status status = exchange->join())
    return status;
  if (mpt_status status = rows.empty() ? MPT_OK : exchange->gather(rows))
    return status;
  for (Value &value : values) {
    if (value.what.phase != phase || !value.isSmall || !value.what.elements)
      continue;
    std::vector<float *> nodes;
    for (size_t peer = 0; peer < plan.owners.size(); ++peer)
      for (size_t i = 0; i < plan.owners[peer].size(); ++i)
        nodes.push_back(reinterpret_cast<float *>(value.received.data()) +
                        (static_cast<int64_t>(peer) * mostNodes + static_cast<int64_t>(i)) * value.what.elements);
    if (mpt_status status = sumNodes(value, nodes, value.slot(0), value.what.elements))
      return status;
  }
  return MPT_OK;
}
