// SPDX-License-Identifier: Apache-2.0
// The step of a library with replicas: this process's replicas one after the other, the reduction over all of them,
// and the update.
#ifndef MPT_RUNTIME_CORE_REPLICAS_H
#define MPT_RUNTIME_CORE_REPLICAS_H

#include "core/Context.h"

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace mpt::rt {

struct FunctionState;
class Device;
class DeviceStep;
struct Json;
class KeptValues;
class Memory;
class Reduction;
class World;

/// The entry on replicas in a library's manifest.
struct ReplicasOfModel {
  int64_t count = 0;           ///< 0: one a process
  std::set<std::string> split; ///< inputs with rows for all replicas
};

/// The function "step" as callers see it: inputs for several replicas, results of "combine".
class GlobalStep {
public:
  /// The rows of `replicas` replicas.
  GlobalStep(const mpt_module_desc &module, const ReplicasOfModel &of, int64_t replicas);
  GlobalStep(const GlobalStep &) = delete;
  const mpt_function_desc &desc() const { return function; }

private:
  mpt_function_desc function{};
  std::vector<mpt_tensor_desc> inputs;
  std::vector<std::vector<int64_t>> shapes;
};

/// The number of the tensor of that name and role in a table, or -1.
int64_t indexOf(const mpt_tensor_desc *table, int64_t count, const char *name, int64_t role = MPT_ROLE_INPUT);

/// Whether replicas exchange the value.
constexpr bool isExchanged(const mpt_tensor_desc &t) { return t.role >= MPT_ROLE_SUM && t.role <= MPT_ROLE_GATHER; }
/// Whether a replica keeps the value from one function of a step to later ones.
constexpr bool isKept(const mpt_tensor_desc &t) { return t.role == MPT_ROLE_KEPT; }

/// A value that replicas exchange behind one of the functions of a step.
struct ExchangedValue {
  enum How { Sum, Max, Scatter, Gather };
  const char *name;
  How how;
  size_t phase;     ///< that makes it
  size_t taken;     ///< the first phase that takes the result
  int64_t output;   ///< of the phase
  int64_t dtype;    ///< of a replica's contribution; sums and maxima are FP32
  int64_t elements; ///< of a replica's contribution
  int64_t part;     ///< bytes of one replica's contribution (Gather), or of its row of the sums (Scatter)
  int64_t all;      ///< bytes of the result, over all replicas
};

/// How the functions of a step are run on this process.
struct StepLayout {
  std::vector<const mpt_function_desc *> phases; ///< in their order
  const mpt_function_desc *global = nullptr;     ///< the step as the caller sees it
  std::set<std::string> split;                   ///< inputs with rows for all replicas
  int64_t replicas, first, local;                ///< in all; number of the first one here; how many here
};

/// Refuses indices and labels out of range in the caller's inputs, as the phases of a step from `first` on read them,
/// of all local replicas; `given` has the addresses of the global step's.
mpt_status checkIndicesOf(Device &device, const StepLayout &layout, size_t first,
                          const std::vector<const void *> &given);

/// The values that phases of a step exchange, in the order of their tables. MPT_BAD_FILE where no later one takes a
/// value as it is made.
mpt_status readExchanged(const StepLayout &layout, std::vector<ExchangedValue> &out);

/// Null in `out` where the library has no replicas.
mpt_status readReplicas(const mpt_module_desc &module, const Json &manifest, std::unique_ptr<ReplicasOfModel> &out);

/// MPT_INVALID_ARGUMENT where `ranks` processes cannot have equal parts of `replicas`; of any number (0) they can.
mpt_status checkDivides(const mpt_module_desc &module, int64_t replicas, int ranks);

/// Runs "step" of a library with replicas, in the phases that the compiler made of it (mpt_function_desc). Errors
/// of the caller are found before anything has run.
///
/// Processes cannot come to disagree: data that all compute from is compared over the ranks at the start (library,
/// state) and in every step (shared inputs, edits of the state). A rank that refuses its inputs, or fails, lets the
/// others know in the same step, and nobody changes its state.
class ReplicatedStep final : private OutputListener {
public:
  static constexpr const char *step = "step", *combine = "combine";
  /// The functions of a step in their order.
  static std::vector<const mpt_function_desc *> phasesOf(const mpt_module_desc &module);

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
