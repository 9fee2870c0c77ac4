// SPDX-License-Identifier: Apache-2.0
// cuDNN's engines for a graph: which of them are taken, and their plans.
#include "cuda/GraphPlan.h"

#include <utility>

using namespace mpt::rt;

namespace {

constexpr int64_t mostEngines = 32; // configurations that are asked for their notes
constexpr int64_t mostKnobs = 48;   // of a configuration

/// The engine of a configuration; null where it does not say.
dnn::Descriptor engineOf(GraphMaker &b, dnn::Descriptor config) {
  dnn::Descriptor engine = b.make(dnn::EngineDescriptor);
  int64_t count = 0;
  const bool ok = !b.status && !b.api.BackendGetAttribute(config, dnn::ConfigEngine, dnn::DescriptorsType, 1, &count,
                                                          static_cast<void *>(&engine));
  return ok && count == 1 ? engine : nullptr;
}

/// Deterministic, from the operands as they are, with sums in FP32. False as well where the engine says nothing.
/// Transforms of operands (FFT, Winograd) would be rounded to 16 bits; Tensor Cores round FP32 operands to TF32.
bool isExact(const GraphMaker &b, dnn::Descriptor engine, const GraphForm &form) {
  int64_t count = 0;
  int notes[dnn::NoteCount] = {};
  if (b.api.BackendGetAttribute(engine, dnn::EngineNotes, dnn::NumericalNoteType, dnn::NoteCount, &count, notes))
    return false;
  return std::none_of(notes, notes + std::min<int64_t>(count, dnn::NoteCount), [&](int note) {
    if (note == dnn::NoteNondeterministic || note == dnn::NoteNarrowSums)
      return true;
    if (note == dnn::NoteDownConvert || (note == dnn::NoteTensorCore && form.single))
      return !form.tf32;
    return !form.single && note >= dnn::NoteFft && note <= dnn::NoteLastWinograd;
  });
}

/// "form/engine/knob=value,...".
std::string labelOf(GraphMaker &b, size_t form, dnn::Descriptor engine, dnn::Descriptor config) {
  int64_t count = 0, index = -1;
  b.api.BackendGetAttribute(engine, dnn::EngineIndex, dnn::Int64Type, 1, &count, &index);
  std::string text = std::to_string(form) + "/" + std::to_string(index) + "/";
  dnn::Descriptor choices[mostKnobs];
  for (dnn::Descriptor &choice : choices)
    choice = b.make(dnn::KnobDescriptor);
  if (b.status || b.api.BackendGetAttribute(config, dnn::ConfigKnobs, dnn::DescriptorsType, mostKnobs, &count, choices))
    return text;
  for (int64_t i = 0; i < std::min(count, mostKnobs); ++i) {
    int type = -1;
    int64_t value = 0, one = 0;
    dnn::Descriptor choice = choices[i];
    b.api.BackendGetAttribute(choice, dnn::KnobType, dnn::KnobTypeType, 1, &one, &type);
    b.api.BackendGetAttribute(choice, dnn::KnobValue, dnn::Int64Type, 1, &one, &value);
    text += (i ? "," : "") + std::to_string(type) + "=" + std::to_string(value);
  }
  return text;
}

/// The configurations that cuDNN proposes for a graph, by one of its heuristics.
std::vector<dnn::Descriptor> configsOf(GraphMaker &b, const PlanTarget &target, dnn::Descriptor graph, int mode) {
  dnn::Descriptor heuristic = b.make(dnn::HeuristicDescriptor);
  b.set(heuristic, dnn::HeuristicGraph, dnn::DescriptorsType, graph);
  if (target.device)
    b.set(heuristic, dnn::HeuristicDevice, dnn::DescriptorsType, target.device);
  b.set(heuristic, dnn::HeuristicMode, dnn::HeuristicModeType, mode);
  b.finish(heuristic);
  std::vector<dnn::Descriptor> configs(mostEngines);
  for (dnn::Descriptor &config : configs)
    config = b.make(dnn::EngineConfigDescriptor);
  int64_t count = 0;
  if (b.status || b.api.BackendGetAttribute(heuristic, dnn::HeuristicResults, dnn::DescriptorsType, mostEngines, &count,
                                            configs.data()))
    count = 0;
  b.status = 0; // no engine is no reason to ask no further
  configs.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, mostEngines)));
  return configs;
}

} // namespace

EnginePlan::EnginePlan(std::shared_ptr<GraphMaker> from, const GraphForm &form, std::string label)
    : label(std::move(label)), origin(std::move(from)), name(form.name), ids(form.ids), spares(form.spares),
      spareBytes((form.spareBytes + 255) / 256 * 256), maker(origin->api) {
  for (auto [id, number] : form.numbers) {
    ids.push_back(id);
    numbers.push_back(number);
  }
}

bool EnginePlan::build(const PlanTarget &target, dnn::Descriptor config) {
  plan = maker.make(dnn::PlanDescriptor);
  if (target.device)
    maker.set(plan, dnn::PlanDevice, dnn::DescriptorsType, target.device);
  else
    maker.set(plan, dnn::PlanHandle, dnn::HandleType, target.handle);
  maker.set(plan, dnn::PlanConfig, dnn::DescriptorsType, config);
  maker.finish(plan);
  int64_t count = 0;
  return !maker.status &&
         !maker.api.BackendGetAttribute(plan, dnn::PlanWorkspace, dnn::Int64Type, 1, &count, &workspace) &&
         workspace <= ConvLibrary::workspaceBytes;
}

mpt_status EnginePlan::run(CudaDevice &device, const std::vector<void *> &pointers) {
  dnn::Status status = 0;
  if (mpt_status ran = execute(device, pointers, status))
    return ran;
  return status ? fail(MPT_INTERNAL, "%s: cuDNN: %s", name, device.convolutions()->api.GetErrorString(status)) : MPT_OK;
}

mpt_status EnginePlan::execute(CudaDevice &device, std::vector<void *> pointers, dnn::Status &status) {
  const int64_t own = (workspace + 255) / 256 * 256, bytes = own + static_cast<int64_t>(spares) * spareBytes;
  uint8_t *scratch = bytes ? device.scratch(bytes) : nullptr;
  if (bytes && !scratch)
    return MPT_OUT_OF_MEMORY;
  for (size_t i = 0; i < spares; ++i)
    pointers.push_back(scratch + own + static_cast<int64_t>(i) * spareBytes);
  for (float &number : numbers)
    pointers.push_back(&number);
  std::vector<int64_t> present;
  for (size_t i = 0; i < pointers.size(); ++i)
    if (pointers[i])
      present.push_back(ids[i]);
  pointers.erase(std::remove(pointers.begin(), pointers.end(), nullptr), pointers.end());
  GraphMaker b(maker.api);
  dnn::Descriptor pack = b.make(dnn::PackDescriptor);
  b.set(pack, dnn::PackIds, dnn::Int64Type, present.data(), present.size());
  b.set(pack, dnn::PackPointers, dnn::PointerType, pointers.data(), pointers.size());
  b.set(pack, dnn::PackWorkspace, dnn::PointerType, scratch);
  b.finish(pack);
  status = b.status ? b.status : maker.api.BackendExecute(device.convolutions()->handle, plan, pack);
  return MPT_OK;
}

float EnginePlan::measure(CudaDevice &device, const std::vector<void *> &pointers) {
  return device.fastest(2, [&] {
    dnn::Status status = 0;
    return execute(device, pointers, status) == MPT_OK && !status;
  });
}

std::vector<std::shared_ptr<EnginePlan>> mpt::rt::proposePlans(const dnn::GraphFunctions &api, const PlanTarget &target,
                                                               const GraphRequest &request, const PlanLimits &limits) {
  std::vector<std::shared_ptr<EnginePlan>> plans;
  for (size_t form = 0; form < request.forms.size() && (plans.empty() || limits.everyForm); ++form) {
    auto origin = std::make_shared<GraphMaker>(api, target.handle);
    dnn::Descriptor graph = request.forms[form].make(*origin);
    if (origin->status)
      continue;
    int64_t made = 0;
    for (int mode : {dnn::HeuristicA, dnn::HeuristicFallback}) {
      for (dnn::Descriptor config : configsOf(*origin, target, graph, mode)) {
        if (made == limits.plans)
          break;
        dnn::Descriptor engine = engineOf(*origin, config);
        if (!engine || !isExact(*origin, engine, request.forms[form]))
          continue;
        std::string label = labelOf(*origin, form, engine, config);
        if (!limits.label.empty() && limits.label != label)
          continue;
        auto plan = std::make_shared<EnginePlan>(origin, request.forms[form], std::move(label));
        if (!plan->build(target, config))
          continue;
        plans.push_back(std::move(plan));
        ++made;
      }
      if (made) // the others are for graphs that the first way has nothing for
        break;
    }
  }
  return plans;
}
