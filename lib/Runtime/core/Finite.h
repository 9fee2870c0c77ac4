// SPDX-License-Identifier: Apache-2.0
// The first value of a run that was not finite, for libraries compiled with --debug-nonfinite.
#ifndef MPT_RUNTIME_CORE_FINITE_H
#define MPT_RUNTIME_CORE_FINITE_H

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <map>
#include <string>
#include <vector>

namespace mpt::rt {

/// Counts over one tensor.
struct FiniteCounts {
  int64_t infinities = 0, nans = 0, count = 0;
  double smallest = 0, largest = 0; ///< magnitudes of finite values that are not zero; 0 when there is none
  bool allFinite() const { return infinities == 0 && nans == 0; }
  void add(const FiniteCounts &other);
};

class Device;
class Shards;

class FiniteCheck {
public:
  /// For values that lie in the memory of `device`.
  explicit FiniteCheck(Device &device) : device(device) {}
  /// Before a run: refuses inputs and parameters that are not finite.
  mpt_status begin(const mpt_function_desc &function, const std::vector<const void *> &inputs,
                   const mpt_module_desc &module, const Shards &shards, const uint8_t *state);
  /// Keeps the first finding.
  mpt_status look(const mpt_check_desc &desc, const void *data);
  /// After a run: MPT_NOT_FINITE with the finding as error text, when the run was skipped or a result is not finite.
  mpt_status end(const mpt_function_desc &function, const std::vector<void *> &outputs, bool skipped, double lossScale);

  /// Of a tensor in the device's memory; nothing where it is NULL or holds integers.
  mpt_status count(const mpt_tensor_desc &tensor, const void *data, FiniteCounts &counts);
  /// Of state tensor i of the block `state`: of all local shards where it is divided.
  mpt_status countState(const mpt_tensor_desc &tensor, const Shards &shards, int64_t i, const uint8_t *state,
                        FiniteCounts &counts);

private:
  mpt_status count(const mpt_check_desc &desc, const void *data, FiniteCounts &counts);
  std::string describe(const mpt_function_desc &function, bool skipped, double lossScale) const;

  Device &device;
  std::map<std::string, int64_t> runs; // of each function, counted from 0
  bool found = false;
  mpt_check_desc where{};
  FiniteCounts counts;
};

} // namespace mpt::rt

#endif
