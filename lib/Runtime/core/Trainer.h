// SPDX-License-Identifier: Apache-2.0
// One trainer: its state block, scratch, results and call-site caches.
#ifndef MPT_RUNTIME_CORE_TRAINER_H
#define MPT_RUNTIME_CORE_TRAINER_H

#include "core/Context.h"
#include "core/Device.h"
#include "core/Finite.h"
#include "core/Model.h"
#include "core/Profile.h"
#include "core/Replicas.h"
#include "core/Shards.h"
#include "core/Stall.h"

#include <map>

namespace mpt::rt {

/// State of a function of the model between calls.
struct FunctionState {
  Context context;
  std::unique_ptr<Profile> profile;  // null unless asked for
  std::unique_ptr<SiteCache> device; // the device's cache for it
  Block outputs;
  std::vector<void *> outputPointers;
  std::vector<const void *> inputPointers; // as given, then as staged
  std::vector<uint8_t> hostOutputs;        // a copy of `outputs` where the host cannot read it
  alignas(64) uint8_t learningRate[64];    // the default, where the caller gives none
  bool ran = false, copied = false;        // copied: hostOutputs is the last run's
  bool watched = false;                    // the last run was counted by the trainer's StallWatch
};

} // namespace mpt::rt

struct mpt_trainer {
  mpt_trainer() = default;
  ~mpt_trainer();
  std::shared_ptr<mpt::rt::Model> model;
  std::unique_ptr<mpt::rt::Device> device; // before the memory that it owns
  std::string description, libraries;      // of the device, once asked for
  std::string profiles;                    // the text that mpt_trainer_profile gave
  int threads = 1, profileRows = 0;
  double learningRate = 0;
  bool hasLearningRate = false;
  std::unique_ptr<mpt::rt::FiniteCheck> finite; // where the library calls mpt_rt_check
  mpt::rt::StallWatch stall;
  std::unique_ptr<mpt::rt::ReplicatedStep> replicas; // of a library whose step has replicas
  mpt::rt::Shards shards;                            // how `state` is laid out
  bool comparesStates = false;                       // with other processes
  std::string checksumOfShards;                      // of the whole tensors that shards were cut from, to compare
  mpt::rt::Block state, arena;
  std::string weights; // file of initial values, where the caller named one
  bool hasWeights = false, setsSeed = false;
  uint64_t seed = 0;                             // of generators, where `setsSeed`
  std::vector<mpt::rt::FunctionState> functions; // as in the module's table
  /// The function that ran last, by its name without the size.
  std::map<std::string, const mpt_function_desc *, std::less<>> last;
  std::map<std::string, int64_t> index;   // state tensors by name
  std::map<std::string, int64_t> masters; // parameter name to its master

  /// The tables of all functions that have a profile.
  std::string profileTables() const;
  const mpt_tensor_desc &tensor(int64_t i) const { return model->desc->state[i]; }
  /// In the device's memory: of a divided tensor, the shard of the first local replica.
  uint8_t *at(int64_t i) const { return state.data() + tensor(i).offset; }
};

namespace mpt::rt {

/// Gives the state its initial values: from the weights file `given`, or, where it is null, from the one beside the
/// library; zero for state that training creates. With `setSeed`, the state of the random generator becomes `seed`.
mpt_status initializeState(mpt_trainer &trainer, const char *given, bool setSeed, uint64_t seed);

/// MPT_OUT_OF_MEMORY for `bytes` of `what`; `largest` ends the text.
mpt_status outOfMemory(const Device &device, const char *what, int64_t bytes, const std::string &largest = "");

/// `status`, which keeps this rank from a collective that the others wait for: they are told.
mpt_status abandoned(const mpt_trainer &trainer, mpt_status status);

/// The state where the host can read it: the block itself, or a copy that `copy` owns.
mpt_status hostState(const mpt_trainer &trainer, std::unique_ptr<Memory> &copy, const uint8_t *&out);

/// The text of a state block's checksum, over its tensors in the module's order, but for divided ones.
std::string checksumOfState(const mpt_trainer &trainer, const uint8_t *state);

/// The finished steps that a state says it has, for the metadata of files.
std::string stepOf(const mpt_module_desc &module, const uint8_t *state);

/// The trainer's state of a function of its model.
inline FunctionState &stateOf(mpt_trainer &trainer, const mpt_function_desc &f) {
  return trainer.functions[static_cast<size_t>(&f - trainer.model->desc->functions)];
}

/// The caller's tensor for each input of `f`, by name, or null for a learning rate that is not given. Refuses tensors
/// that are unknown, missing, given twice, or of another shape or type.
mpt_status matchInputs(const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                       std::vector<const mpt_tensor *> &out);

/// Where the caller's tensors `given` lie, or the trainer's learning rate, as `state.inputPointers`. Refuses tensors
/// out of reach, and rates that are not finite.
mpt_status pointersOf(mpt_trainer &trainer, const mpt_function_desc &f, FunctionState &state,
                      const std::vector<const mpt_tensor *> &given);

/// A line on standard error where types were chosen by times of another device than the trainer's.
void warnOfOtherDevice(const mpt_trainer &trainer);

/// Takes the memory that runs of `f` need, where it is not there yet.
mpt_status prepareFunction(mpt_trainer &trainer, const mpt_function_desc &f);

/// Makes all ready for a run of `f`, which `exec` is handed to.
mpt_status beginRun(mpt_trainer &trainer, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                    int64_t replica, mpt_exec &exec);

/// Runs one function of the library; divided states are local replica `replica`'s.
mpt_status runFunction(mpt_trainer &trainer, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                       mpt_metrics *metrics, int64_t replica = 0);

/// Notes that a run of `f` has begun, and that nothing is known of its results.
void startedRun(mpt_trainer &trainer, const mpt_function_desc &f);
/// Reads the metrics of a run of `f`. MPT_STALLED where too many steps in a row were skipped; `inputs`, where there are
/// any, are the step's.
mpt_status readRun(mpt_trainer &trainer, const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                   mpt_metrics &out);

/// Where the host reads output `i` of the last run of `f`.
mpt_status hostOutput(mpt_trainer &trainer, const mpt_function_desc &f, FunctionState &state, int64_t i, void *&out);

} // namespace mpt::rt

#endif
