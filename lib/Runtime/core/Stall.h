// SPDX-License-Identifier: Apache-2.0
// Notices training that skips every step for ever, and looks for the tensor that causes it.
#ifndef MPT_RUNTIME_CORE_STALL_H
#define MPT_RUNTIME_CORE_STALL_H

#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include <string>

struct mpt_trainer;

namespace mpt::rt {

struct FunctionState;

/// Counts steps in a row that were skipped without lowering the loss scale: a scale that still falls may yet fit.
class StallWatch {
public:
  int64_t limit = 64; ///< 0: nothing is watched
  /// True when this step makes `limit` of them, or a multiple of it.
  bool add(const mpt_metrics &step);
  int64_t skipped() const { return count; }

private:
  int64_t count = 0;
  double scale = 0;
};

/// The first input, state tensor or result of the run of `f` whose values are not finite, as part of a sentence; ""
/// where all are finite.
mpt_status nameNonfinite(mpt_trainer &trainer, const mpt_function_desc &f, const FunctionState &state,
                         std::string &out);

} // namespace mpt::rt

#endif
