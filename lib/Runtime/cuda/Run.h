// SPDX-License-Identifier: Apache-2.0
// A function's runs on the device.
#ifndef MPT_RUNTIME_CUDA_RUN_H
#define MPT_RUNTIME_CUDA_RUN_H

#include "core/Trainer.h"
#include "cuda/Inputs.h"

namespace mpt::rt {

/// One function of a trainer: its inputs, and the graph of its work, which later runs launch.
class FunctionRun : public SiteCache {
public:
  FunctionRun(CudaDevice &device, const mpt_function_desc &f) : device(device), f(f), inputs(device, f) {}
  ~FunctionRun() override;
  /// The runs of the function that `state` belongs to, made when first asked for.
  static FunctionRun &of(CudaDevice &device, const mpt_function_desc &f, FunctionState &state);

  // The device's context is current in both.
  mpt_status stage(FunctionState &state) { return inputs.stage(state.inputPointers); }
  mpt_status run(FunctionState &state, mpt_exec &exec);
  /// Runs once, so that algorithms are chosen, then `runs` times as one graph: the mean of these.
  mpt_status time(FunctionState &state, mpt_exec &exec, int64_t runs, double &seconds);

private:
  mpt_status runPart(FunctionState &state, mpt_exec &exec);
  mpt_status runOnce(FunctionState &state, mpt_exec &exec, bool watch);
  mpt_status profile(FunctionState &state, mpt_exec &exec);
  mpt_status capture(mpt_exec &exec);
  mpt_status runFirst(FunctionState &state, mpt_exec &exec);
  /// Has plans made for all of its calls at once, before the first run. Nothing is put on the stream.
  mpt_status makePlans(FunctionState &state, mpt_exec &exec);
  void dropGraph();

  CudaDevice &device;
  const mpt_function_desc &f;
  StagedInputs inputs;
  /// The addresses of the last run: a graph is good while they stay the same.
  std::vector<const void *> bindings;
  bool warm = false, hasPlans = false;
  bool ranInStep = false; // as a part of a step
  bool eager = false;     // its graph could not be recorded
  cu::GraphExec graph = nullptr;
};

} // namespace mpt::rt

#endif
