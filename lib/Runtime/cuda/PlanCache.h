// SPDX-License-Identifier: Apache-2.0
// cuDNN's plans for the graphs of a trainer: made on threads before the first run, measured in it, and remembered.
#ifndef MPT_RUNTIME_CUDA_PLANCACHE_H
#define MPT_RUNTIME_CUDA_PLANCACHE_H

#include "cuda/GraphPlan.h"

#include <atomic>
#include <map>
#include <mutex>

namespace mpt::rt {

class PlanCache {
public:
  PlanCache(CudaDevice &device, ConvLibrary &library) : device(device), library(library) {}
  PlanCache(const PlanCache &) = delete;
  ~PlanCache();

  /// Notes that a run will ask for `request`, and for `otherwise` where that has no plan or may be slower.
  void expect(const GraphRequest &request, const GraphRequest &otherwise = {});
  /// Makes the expected plans, on as many threads as there are processors. A plan takes cuDNN seconds where its
  /// engine is compiled.
  void build();

  /// Milliseconds of computing the same without the plan; negative where that is not to be had.
  using Alternative = std::function<float()>;
  /// The plan for a request: the one chosen before, else the fastest on the operands (the first that runs with option
  /// search=off). Null where cuDNN has none, or `otherwise` is faster (not asked by search=off). Not to be called
  /// while a graph is recorded.
  std::shared_ptr<GraphPlan> find(const GraphRequest &request, const std::vector<void *> &pointers,
                                  const Alternative &otherwise = {});
  /// Of the plan that find() gave last for a request; negative where it was not measured.
  float timeOf(const GraphRequest &request) const;
  /// Forgets all plans, so that they are chosen again.
  void clear() { entries.clear(); }

private:
  using Candidates = std::vector<std::shared_ptr<EnginePlan>>;
  struct Entry {
    Candidates candidates;
    std::shared_ptr<EnginePlan> chosen;
    bool isDecided = false;
    float time = -1;
  };
  struct Expected {
    GraphRequest request, otherwise;
    std::string known, knownOtherwise; // labels of the plans chosen before
  };
  PlanLimits limits(const std::string &known) const;
  const std::string *chosenBefore(const GraphRequest &request);
  /// The plans for a request that may be chosen: the `known` one, none where that is no plan.
  Candidates candidatesFor(const GraphRequest &request, const std::string &known, dnn::Handle handle) const;
  /// Makes the plans of one of `all` after the other.
  void work(const std::vector<Expected> &all, size_t thread);
  /// Chooses among the candidates, as before or by measurement.
  void decide(const GraphRequest &request, Entry &entry, const std::vector<void *> &pointers,
              const Alternative &otherwise);

  CudaDevice &device;
  ConvLibrary &library;
  std::map<std::string, Entry> entries;
  std::mutex lock; // of `entries`, while threads work
  std::atomic<size_t> next{0};
  std::map<std::string, Expected> expected;
  std::vector<dnn::Handle> handles; // of threads: one handle may not be used by several at a time
};

} // namespace mpt::rt

#endif
