// SPDX-License-Identifier: Apache-2.0
// How a step with replicas is divided.
#ifndef MPT_RUNTIME_CORE_STEPLAYOUT_H
#define MPT_RUNTIME_CORE_STEPLAYOUT_H

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <memory>
#include <set>
#include <string>
#include <vector>

namespace mpt::rt {

class Device;
struct Json;
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

/// Whether the runtime gives the input, not the caller.
constexpr bool isOwn(const mpt_tensor_desc &input) { return input.role != MPT_ROLE_INPUT; }
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

/// The functions of a step in their order.
std::vector<const mpt_function_desc *> phasesOf(const mpt_module_desc &module);

/// The phases and replicas of this process; `world` may be null.
StepLayout layoutOf(const mpt_module_desc &module, const ReplicasOfModel &of, const World *world);

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

} // namespace mpt::rt

#endif // MPT_RUNTIME_CORE_STEPLAYOUT_H
