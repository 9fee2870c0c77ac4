// SPDX-License-Identifier: Apache-2.0
// Notices training that skips every step for ever, and looks for the tensor that causes it.
#include "core/Stall.h"

#include "core/Trainer.h"

#include <cstring>

namespace mpt::rt {

bool StallWatch::add(const mpt_metrics &step) {
  bool falls = count > 0 && step.loss_scale < scale;
  count = !step.skipped ? 0 : falls ? 1 : count + 1;
  scale = step.loss_scale;
  return limit > 0 && count > 0 && count % limit == 0;
}

namespace {

std::string describe(const char *what, const mpt_tensor_desc &tensor, const FiniteCounts &counts) {
  return std::string(what) + " '" + tensor.name + "' holds " + std::to_string(counts.infinities) + " infinities and " +
         std::to_string(counts.nans) + " NaN in " + std::to_string(counts.count) + " values";
}

bool isTrained(int64_t role) {
  return role == MPT_ROLE_PARAMETER || role == MPT_ROLE_MASTER || role == MPT_ROLE_SLOT || role == MPT_ROLE_STATISTIC;
}

} // namespace

mpt_status nameNonfinite(mpt_trainer &trainer, const mpt_function_desc &f, const FunctionState &state,
                         std::string &out) {
  FiniteCheck check(*trainer.device);
  const mpt_module_desc &m = *trainer.model->desc;
  FiniteCounts counts;
  std::string infinite; // an input's infinities may be meant, as in masks
  for (int64_t i = 0; i < f.num_inputs && out.empty(); ++i) {
    if (mpt_status status = check.count(f.inputs[i], state.inputPointers[static_cast<size_t>(i)], counts))
      return status;
    if (counts.nans)
      out = describe("input", f.inputs[i], counts);
    else if (counts.infinities && infinite.empty())
      infinite = describe("input", f.inputs[i], counts);
  }
  for (int64_t i = 0; i < m.num_state && out.empty(); ++i)
    if (isTrained(m.state[i].role)) {
      if (mpt_status status = check.countState(m.state[i], trainer.shards, i, trainer.state.data(), counts))
        return status;
      if (!counts.allFinite())
        out = describe("state", m.state[i], counts);
    }
  bool gradients = trainer.model->sizes.nameOf(f) == "gradients";
  for (int64_t i = 0; i < f.num_outputs && out.empty(); ++i) {
    const int64_t role = f.outputs[i].role;
    if (role == MPT_ROLE_GRAD_NORM) // says no more than that the step was skipped
      continue;
    if (mpt_status status = check.count(f.outputs[i], state.outputPointers[static_cast<size_t>(i)], counts))
      return status;
    if (!counts.allFinite())
      out = describe(gradients && role == MPT_ROLE_OUTPUT ? "the gradient of" : "result", f.outputs[i], counts);
  }
  if (!out.empty() && !infinite.empty())
    out += ", " + infinite;
  return MPT_OK;
}

} // namespace mpt::rt
