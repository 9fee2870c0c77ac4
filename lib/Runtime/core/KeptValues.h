// SPDX-License-Identifier: Apache-2.0
// Values that a replica computes in one function of a step and reads in later ones, for all local replicas.
#ifndef MPT_RUNTIME_CORE_KEPTVALUES_H
#define MPT_RUNTIME_CORE_KEPTVALUES_H

#include "core/Device.h"

#include <map>
#include <string>
#include <vector>

namespace mpt::rt {

struct StepLayout;

/// Memory of such values. Values that are never needed at the same time share it.
class KeptValues {
public:
  /// Finds them in the tables of the step's functions. MPT_BAD_FILE where one takes a value that none before makes.
  mpt_status prepare(Device &device, const StepLayout &layout);
  /// Where local replica `k` has the value of that name; null for other names.
  uint8_t *find(const char *name, int64_t k) const;
  /// Makes the outputs of phase `phase` that replica `k` keeps go to their places.
  void place(size_t phase, int64_t k, std::vector<void *> &outputs) const;
  int64_t bytes() const { return block.bytes(); }

private:
  struct Value {
    size_t made, last; ///< phases: the one that makes it, and the last one that reads it
    int64_t output;    ///< of the phase that makes it
    int64_t stride;    ///< bytes from a replica's value to the next one's
    int64_t bytes;     ///< of all local replicas
    int64_t offset;
  };
  int64_t assignOffsets();

  std::map<std::string, Value, std::less<>> values;
  std::vector<std::vector<const Value *>> made; ///< by phase
  Block block;
};

} // namespace mpt::rt

#endif
