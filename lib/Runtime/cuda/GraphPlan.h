// SPDX-License-Identifier: Apache-2.0
// Graphs of cuDNN's with one engine for all of their operations: requests, and plans for them.
#ifndef MPT_RUNTIME_CUDA_GRAPHPLAN_H
#define MPT_RUNTIME_CUDA_GRAPHPLAN_H

#include "cuda/GraphMaker.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>

namespace mpt::rt {

/// An engine for a graph, ready to run.
class GraphPlan {
public:
  virtual ~GraphPlan() = default;
  /// `pointers` in the order of the ids of the form that the plan is of; null for one that the graph does without.
  virtual mpt_status run(CudaDevice &device, const std::vector<void *> &pointers) = 0;
};

/// A graph, the ids of its tensors in memory, of which nobody wants the last `spares`, of `spareBytes` each (they lie
/// in scratch, behind the pointers that are given), and its numbers by id.
struct GraphForm {
  std::function<dnn::Descriptor(GraphMaker &)> make;
  std::vector<int64_t> ids;
  size_t spares = 0;
  int64_t spareBytes = 0;
  std::vector<std::pair<int64_t, float>> numbers = {};
  const char *name = "convolution"; ///< for errors
  bool single = false;              ///< operands are FP32, which Tensor Cores would round
  bool tf32 = false;                ///< ... and may
};

/// One computation, in the forms in which cuDNN can be asked for it, best first. Without a form it is not to be asked.
struct GraphRequest {
  std::string key; ///< text that tells it from all others
  std::vector<GraphForm> forms;
};

/// The device that plans are made for: a handle's, or one that is only described (its plans do not run).
struct PlanTarget {
  dnn::Handle handle = nullptr;
  dnn::Descriptor device = nullptr;
};

/// The plan of one engine's configuration.
class EnginePlan : public GraphPlan {
public:
  EnginePlan(std::shared_ptr<GraphMaker> origin, const GraphForm &form, std::string label);
  /// False where the engine takes the graph after all not, or wants more scratch than there is.
  bool build(const PlanTarget &target, dnn::Descriptor config);
  mpt_status run(CudaDevice &device, const std::vector<void *> &pointers) override;
  /// Milliseconds; negative where it does not run.
  float measure(CudaDevice &device, const std::vector<void *> &pointers);

  const std::string label; ///< form, engine and knobs: the same in every process with this version of cuDNN
  int64_t workspace = 0;   ///< bytes

private:
  mpt_status execute(CudaDevice &device, std::vector<void *> pointers, dnn::Status &status);

  std::shared_ptr<GraphMaker> origin; // of the plan's descriptors
  const char *const name;
  std::vector<int64_t> ids;
  std::vector<float> numbers; // read when a run is put on the stream
  const size_t spares;
  const int64_t spareBytes;
  GraphMaker maker;
  dnn::Descriptor plan = nullptr;
};

/// How many plans are made of a request.
struct PlanLimits {
  int64_t plans = 1;      ///< of a form
  bool everyForm = false; ///< otherwise plans of the first form that has any
  std::string label = {}; ///< where it is given, the plan of that label alone
};

/// Plans for a request, in the order in which cuDNN expects them to be fast. Engines that are not deterministic, sum in
/// less than FP32 or change their operands are left out, and engines that say nothing of it. May be called by several
/// threads, each with a handle of its own.
std::vector<std::shared_ptr<EnginePlan>> proposePlans(const dnn::GraphFunctions &api, const PlanTarget &target,
                                                      const GraphRequest &request, const PlanLimits &limits);

/// Whether all pointers are as graphs state; null ones are.
inline bool areAligned(const std::vector<void *> &pointers) {
  return std::all_of(pointers.begin(), pointers.end(),
                     [](const void *p) { return reinterpret_cast<uintptr_t>(p) % graphAlignment == 0; });
}

} // namespace mpt::rt

#endif
