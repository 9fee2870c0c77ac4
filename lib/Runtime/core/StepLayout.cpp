// SPDX-License-Identifier: Apache-2.0
// How a step with replicas is divided: its functions, the values that they exchange, and who runs which replica.
#include "core/StepLayout.h"

#include "core/Indices.h"
#include "core/Json.h"
#include "core/Model.h"
#include "core/Replicas.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

int64_t mpt::rt::indexOf(const mpt_tensor_desc *table, int64_t count, const char *name, int64_t role) {
  for (int64_t i = 0; i < count; ++i)
    if (table[i].role == role && strcmp(table[i].name, name) == 0)
      return i;
  return -1;
}

std::vector<const mpt_function_desc *> mpt::rt::phasesOf(const mpt_module_desc &m) {
  std::vector<const mpt_function_desc *> phases;
  for (int64_t i = 0; i < m.num_functions; ++i)
    if (m.functions[i].phase > 0)
      phases.push_back(&m.functions[i]);
  std::sort(phases.begin(), phases.end(), [](auto *a, auto *b) { return a->phase < b->phase; });
  return phases;
}

mpt_status mpt::rt::checkDivides(const mpt_module_desc &module, int64_t replicas, int ranks) {
  if (replicas % ranks == 0)
    return MPT_OK;
  return fail(MPT_INVALID_ARGUMENT,
              "expected a number of processes that divides the %lld replicas of model '%s', got %d",
              static_cast<long long>(replicas), module.name, ranks);
}

mpt_status mpt::rt::readReplicas(const mpt_module_desc &module, const Json &manifest,
                                 std::unique_ptr<ReplicasOfModel> &out) {
  const std::vector<const mpt_function_desc *> phases = phasesOf(module);
  if (phases.empty())
    return MPT_OK;
  const Json *found = manifest.find("replicas");
  const Json *count = found ? found->find("count") : nullptr, *split = found ? found->find("split") : nullptr;
  if (!count || !count->integral || count->integer < 0 || !split || split->kind != Json::Array)
    return fail(MPT_BAD_FILE, "model '%s': expected 'replicas' with 'count' and 'split' in its manifest", module.name);
  auto info = std::make_unique<ReplicasOfModel>();
  info->count = count->integer;
  for (const Json &name : split->array)
    for (const mpt_function_desc *phase : phases) {
      int64_t i = indexOf(phase->inputs, phase->num_inputs, name.string.c_str());
      if (i >= 0 && phase->inputs[i].rank > 0)
        info->split.insert(name.string);
    }
  out = std::move(info);
  return MPT_OK;
}

GlobalStep::GlobalStep(const mpt_module_desc &module, const ReplicasOfModel &of, int64_t replicas) {
  const std::vector<const mpt_function_desc *> parts = phasesOf(module);
  for (const mpt_function_desc *part : parts)
    for (int64_t i = 0; i < part->num_inputs; ++i) {
      mpt_tensor_desc input = part->inputs[i];
      if (isOwn(input) || indexOf(inputs.data(), static_cast<int64_t>(inputs.size()), input.name) >= 0)
        continue;
      shapes.emplace_back(input.shape, input.shape + input.rank);
      if (of.split.count(input.name)) {
        shapes.back().front() *= replicas;
        input.bytes *= replicas;
      }
      inputs.push_back(input);
    }
  for (size_t i = 0; i < inputs.size(); ++i)
    inputs[i].shape = shapes[i].data();
  function.name = ReplicatedStep::step;
  function.num_inputs = static_cast<int64_t>(inputs.size());
  function.inputs = inputs.data();
  function.num_outputs = parts.back()->num_outputs;
  function.outputs = parts.back()->outputs;
}

StepLayout mpt::rt::layoutOf(const mpt_module_desc &module, const ReplicasOfModel &of, const World *world) {
  StepLayout layout;
  const int64_t size = world ? world->size() : 1;
  layout.phases = phasesOf(module);
  layout.split = of.split;
  layout.replicas = of.count ? of.count : size;
  layout.local = layout.replicas / size;
  layout.first = world ? world->rank() * layout.local : 0;
  return layout;
}

/// Output `i` of a phase as replicas exchange it; no phase takes it yet.
static ExchangedValue exchangedOf(const StepLayout &layout, size_t phase, int64_t i) {
  const mpt_tensor_desc &made = layout.phases[phase]->outputs[i];
  ExchangedValue value{made.name, ExchangedValue::Max, phase, 0, i, made.dtype, elementsOf(made), 0, 0};
  value.all = value.elements * sizeOf(MPT_FLOAT32);
  if (made.role == MPT_ROLE_GATHER) {
    value.how = ExchangedValue::Gather;
    value.part = made.bytes;
    value.all = value.elements * sizeOf(made.dtype) * layout.replicas;
  } else if (made.role == MPT_ROLE_SCATTER) {
    value.how = ExchangedValue::Scatter;
    value.part = value.all / layout.replicas;
  } else if (made.role == MPT_ROLE_SUM) {
    value.how = ExchangedValue::Sum;
  }
  return value;
}

/// The first phase that takes `value`; 0 where there is none, or one takes another type or size.
static size_t takerOf(const StepLayout &layout, const ExchangedValue &value, int64_t role) {
  const int64_t dtype = value.how == ExchangedValue::Gather ? value.dtype : MPT_FLOAT32;
  const int64_t bytes = value.how == ExchangedValue::Scatter ? value.part : value.all;
  size_t taken = 0;
  for (size_t later = value.phase + 1; later < layout.phases.size(); ++later) {
    const mpt_function_desc &f = *layout.phases[later];
    const int64_t input = indexOf(f.inputs, f.num_inputs, value.name, role);
    if (input < 0)
      continue;
    if (f.inputs[input].dtype != dtype || f.inputs[input].bytes != bytes)
      return 0;
    taken = taken ? taken : later;
  }
  return taken;
}

mpt_status mpt::rt::readExchanged(const StepLayout &layout, std::vector<ExchangedValue> &out) {
  for (size_t phase = 0; phase + 1 < layout.phases.size(); ++phase)
    for (int64_t i = 0; i < layout.phases[phase]->num_outputs; ++i) {
      const mpt_tensor_desc &made = layout.phases[phase]->outputs[i];
      if (isKept(made)) // by KeptValues
        continue;
      ExchangedValue value = exchangedOf(layout, phase, i);
      const bool isTyped = value.how == ExchangedValue::Gather || made.dtype == MPT_FLOAT32 ||
                           made.dtype == MPT_FLOAT16 || made.dtype == MPT_BFLOAT16;
      const bool isDivided = value.how != ExchangedValue::Scatter || value.all % layout.replicas == 0;
      if (isExchanged(made) && isTyped && isDivided)
        value.taken = takerOf(layout, value, made.role);
      if (!value.taken)
        return fail(MPT_BAD_FILE, "expected what '%s' makes as an input of a later function of the step, got '%s'",
                    layout.phases[phase]->name, made.name);
      out.push_back(value);
    }
  return MPT_OK;
}

mpt_status mpt::rt::checkIndicesOf(Device &device, const StepLayout &layout, size_t first,
                                   const std::vector<const void *> &given) {
  for (size_t phase = first; phase < layout.phases.size(); ++phase) {
    const mpt_function_desc &f = *layout.phases[phase];
    std::vector<const void *> inputs(static_cast<size_t>(f.num_inputs), nullptr);
    for (int64_t k = 0; f.num_indices && k < layout.local; ++k) {
      for (int64_t i = 0; i < f.num_inputs; ++i) {
        const mpt_tensor_desc &want = f.inputs[i];
        const int64_t from = indexOf(layout.global->inputs, layout.global->num_inputs, want.name);
        if (from >= 0)
          inputs[static_cast<size_t>(i)] = static_cast<const uint8_t *>(given[static_cast<size_t>(from)]) +
                                           (layout.split.count(want.name) ? k * want.bytes : 0);
      }
      if (mpt_status status = checkIndices(device, f, inputs))
        return status;
    }
  }
  return MPT_OK;
}
