// SPDX-License-Identifier: Apache-2.0
// The step of a library with replicas: this process's replicas one after the other, the reduction over all of them,
// and the update.
#ifndef MPT_RUNTIME_CORE_REPLICAS_H
#define MPT_RUNTIME_CORE_REPLICAS_H

#include "core/Context.h"
#include "core/StepLayout.h"

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <memory>
#include <string>
#include <vector>

namespace mpt::rt {

struct FunctionState;
class Device;
class DeviceStep;
class KeptValues;
class Memory;
class Reduction;
class World;

/// Runs "step" of a library with replicas, in the phases that the compiler made of it (mpt_function_desc). Errors
/// of the caller are found before anything has run.
///
/// Processes cannot come to disagree: data that all compute from is compared over the ranks at the start (library,
/// state) and in every step (shared inputs, edits of the state). A rank that refuses its inputs, or fails, lets the
/// others know in the same step, and nobody changes its state.
class ReplicatedStep final : private OutputListener {
public:
  static constexpr const char *step = "step", *combine = "combine";

  ~ReplicatedStep();
  /// Null in `out` where the library has no replicas; a world of several processes is then an error.
  static mpt_status make(mpt_trainer &trainer, mpt_world *world, std::unique_ptr<ReplicatedStep> &out);
  /// A step; `inputs` have the rows of this process's replicas, in the order of their numbers.
  mpt_status run(mpt_trainer &trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);
  /// Collective: fails where the states of two ranks have different bits, or the whole tensors that they have cut their
  /// shards from. `own` says how this rank came to its state; a rank that failed
  /// says so, and returns that.
  mpt_status compareStates(mpt_trainer &trainer, mpt_status own);
  /// The caller changes the state by hand: the next step is refused unless all ranks were given the same.
  void edited(const char *what, const void *data, int64_t bytes);
  /// Collective: the status of rank 0, which all ranks return.
  mpt_status followFirst(mpt_status own);
  bool isFirst() const;
  /// Null: one process.
  World *ranks() const { return world.get(); }
  /// Of the values that local replicas keep between the functions of a step.
  int64_t keptBytes() const;

private:
  struct Value : ExchangedValue {
    explicit Value(const ExchangedValue &what) : ExchangedValue(what) {}
    int64_t bucket = 0;            // of the reduction; none where shards are gathered
    std::shared_ptr<Memory> total; // all that this process gets of it
    bool complete = false;         // computed by the replica that runs
    int64_t given = 0;             // local replicas that have contributed to it in this step
    uint64_t ticket = 0;           // of a gathered value
  };

  ReplicatedStep(mpt_trainer &trainer, const ReplicasOfModel &of, std::shared_ptr<World> world);
  mpt_status matchValues(mpt_trainer &trainer);
  const mpt_tensor *callersTensor(const std::vector<const mpt_tensor *> &given, const char *name) const;
  mpt_status addValue(const ExchangedValue &what);
  mpt_status runOnDevice(mpt_trainer &trainer, const mpt_tensor *inputs, int64_t count, mpt_metrics *metrics);
  mpt_status bind(size_t phase, const std::vector<const mpt_tensor *> &given, int64_t k, std::vector<mpt_tensor> &out);
  mpt_status runReplica(mpt_trainer &trainer, size_t phase, const std::vector<const mpt_tensor *> &given, int64_t k);
  mpt_status prepareLater(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given);
  mpt_status runShards(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given);
  mpt_status receiveFor(size_t phase);
  mpt_status startGather(Value &value);
  mpt_status contribute(Value &value, const void *data);
  void contributeNothing();
  void ready(int64_t output) override;
  mpt_status agree(mpt_status own, const std::vector<const mpt_tensor *> &given, const mpt_trainer &trainer);
  mpt_status update(mpt_trainer &trainer, const std::vector<const mpt_tensor *> &given, mpt_metrics *metrics);

  std::shared_ptr<World> world; ///< null: one process
  StepLayout layout;
  GlobalStep global;
  std::unique_ptr<DeviceStep> onDevice; ///< null: values pass through the host
  std::unique_ptr<Reduction> reduction;
  std::vector<Value> values;
  std::unique_ptr<KeptValues> kept; ///< null where values stay on the device
  int64_t agreement = 0;            ///< bucket of the numbers that ranks compare in every step
  uint64_t steps = 0, edits = 0;
  std::string notFinite;                  ///< the finding of --debug-nonfinite in this step's replicas
  int64_t number = 0;                     ///< of the replica that runs; an input where functions ask for it
  float count = 0;                        ///< of all replicas, likewise
  const FunctionState *running = nullptr; ///< whose outputs `ready` speaks of
  int64_t present = 0;                    ///< the local replica that runs
  mpt_status early = MPT_OK;              ///< of contributions that were made while the function ran
};

} // namespace mpt::rt

#endif
