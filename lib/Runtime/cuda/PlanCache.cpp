// SPDX-License-Identifier: Apache-2.0
// Making, measuring and remembering cuDNN's plans.
#include "cuda/PlanCache.h"

#include <thread>

using namespace mpt::rt;

namespace {

// In the place of a label: cuDNN has no plan, or something else was faster.
const std::string none = "none", apart = "apart";
bool isNoPlan(const std::string &label) { return label == none || label == apart; }

constexpr int64_t quickPlans = 2, fullPlans = 12;
constexpr size_t mostThreads = 16;

} // namespace

PlanCache::~PlanCache() {
  entries.clear();
  for (dnn::Handle handle : handles)
    if (handle)
      library.api.Destroy(handle);
}

PlanLimits PlanCache::limits(const std::string &known) const {
  switch (device.options.search) {
  case Effort::Off:
    return {1, false, known};
  case Effort::Quick:
    return {quickPlans, false, known};
  case Effort::Full:
    break;
  }
  return {fullPlans, true, known};
}

const std::string *PlanCache::chosenBefore(const GraphRequest &request) {
  return device.chosen.find(library.maker, request.key, device.options.search);
}

PlanCache::Candidates PlanCache::candidatesFor(const GraphRequest &request, const std::string &known,
                                               dnn::Handle handle) const {
  if (isNoPlan(known))
    return {};
  PlanLimits most = limits(known);
  if (!known.empty()) {
    most.everyForm = true; // until the one is found
    most.plans = 1;
  }
  Candidates found = proposePlans(*library.graphs, {handle}, request, most);
  // A file can be wrong.
  return found.empty() && !known.empty() ? proposePlans(*library.graphs, {handle}, request, limits("")) : found;
}

void PlanCache::expect(const GraphRequest &request, const GraphRequest &otherwise) {
  if (entries.count(request.key) || expected.count(request.key))
    return;
  const std::string *known = chosenBefore(request), empty;
  Expected &wish = expected[request.key] = {request, otherwise, known ? *known : empty, empty};
  if (otherwise.forms.empty())
    return;
  if (const std::string *other = chosenBefore(otherwise))
    wish.knownOtherwise = *other;
  if (entries.count(otherwise.key) || expected.count(otherwise.key))
    wish.otherwise.forms.clear();
}

void PlanCache::work(const std::vector<Expected> &all, size_t thread) {
  ContextScope scope(device);
  dnn::Handle &handle = handles[thread];
  if (!handle && library.api.Create(&handle)) {
    handle = nullptr; // the others do it, or find()
    return;
  }
  auto add = [&](const GraphRequest &request, const std::string &known) {
    Entry entry;
    entry.candidates = candidatesFor(request, known, handle);
    const bool has = !entry.candidates.empty();
    std::lock_guard guard(lock);
    entries.try_emplace(request.key, std::move(entry));
    return has;
  };
  for (size_t i = next++; i < all.size(); i = next++) {
    const bool has = add(all[i].request, all[i].known);
    if (!all[i].otherwise.forms.empty() && (!has || device.options.search != Effort::Off))
      add(all[i].otherwise, all[i].knownOtherwise);
  }
}

void PlanCache::build() {
  std::vector<Expected> all;
  all.reserve(expected.size());
  for (auto &[key, wish] : expected)
    all.push_back(std::move(wish));
  expected.clear();
  const size_t threads =
      std::min({all.size(), mostThreads, static_cast<size_t>(std::max(1u, std::thread::hardware_concurrency()))});
  handles.resize(std::max(handles.size(), threads));
  next = 0;
  std::vector<std::thread> workers;
  workers.reserve(threads);
  for (size_t i = 0; i < threads; ++i)
    workers.emplace_back([this, &all, i] { work(all, i); });
  for (std::thread &worker : workers)
    worker.join();
}

std::shared_ptr<GraphPlan> PlanCache::find(const GraphRequest &request, const std::vector<void *> &pointers,
                                           const Alternative &otherwise) {
  auto it = entries.find(request.key);
  if (it == entries.end()) {
    const std::string *known = chosenBefore(request);
    it = entries.try_emplace(request.key).first;
    it->second.candidates = candidatesFor(request, known ? *known : "", library.handle);
  }
  if (!it->second.isDecided)
    decide(request, it->second, pointers, otherwise);
  return it->second.chosen;
}

float PlanCache::timeOf(const GraphRequest &request) const {
  auto it = entries.find(request.key);
  return it == entries.end() ? -1 : it->second.time;
}

void PlanCache::decide(const GraphRequest &request, Entry &entry, const std::vector<void *> &pointers,
                       const Alternative &otherwise) {
  entry.isDecided = true;
  const std::string *known = chosenBefore(request);
  if (known && isNoPlan(*known))
    return;
  if (known && entry.candidates.size() == 1 && entry.candidates.front()->label == *known) {
    entry.chosen = entry.candidates.front();
    entry.candidates.clear();
    return;
  }
  const Effort search = device.options.search;
  for (const std::shared_ptr<EnginePlan> &candidate : entry.candidates) {
    if (search == Effort::Off) {
      if (candidate->run(device, pointers))
        continue;
      entry.chosen = candidate;
      break;
    }
    const float time = candidate->measure(device, pointers);
    if (time >= 0 && (!entry.chosen || time < entry.time)) {
      entry.chosen = candidate;
      entry.time = time;
    }
  }
  entry.candidates.clear();
  std::string label = entry.chosen ? entry.chosen->label : none;
  if (entry.chosen && otherwise && search != Effort::Off)
    if (const float other = otherwise(); other >= 0 && other < entry.time) {
      entry.chosen = nullptr;
      label = apart;
    }
  device.chosen.remember(library.maker, request.key, search, label);
}
