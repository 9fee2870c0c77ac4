// SPDX-License-Identifier: Apache-2.0
// The caller's inputs of a function: found by name, checked, and where they lie.
#include "core/Convert.h"
#include "core/Trainer.h"
#include "core/Types.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace mpt::rt;

/// True for the scalar that has a default: the trainer's own rate.
static bool isLearningRate(const mpt_tensor_desc &t) {
  return strcmp(t.name, "learning_rate") == 0 && isFloating(t.dtype) && elementsOf(t) == 1;
}

mpt_status mpt::rt::matchInputs(const mpt_function_desc &f, const mpt_tensor *inputs, int64_t count,
                                std::vector<const mpt_tensor *> &out) {
  out.assign(static_cast<size_t>(f.num_inputs), nullptr);
  for (int64_t i = 0; i < count; ++i) {
    const mpt_tensor &given = inputs[i];
    std::string known;
    int64_t k = 0;
    for (; k < f.num_inputs; ++k) {
      if (given.name && strcmp(f.inputs[k].name, given.name) == 0)
        break;
      known += (k ? ", " : "") + std::string(f.inputs[k].name);
    }
    if (k == f.num_inputs)
      return fail(MPT_INVALID_ARGUMENT, "'%s' has no input '%s' (it has: %s)", f.name, given.name ? given.name : "",
                  known.c_str());
    const mpt_tensor_desc &want = f.inputs[k];
    bool fits = given.dtype == want.dtype && given.rank == want.rank && (given.shape || given.rank == 0);
    for (int64_t d = 0; fits && d < want.rank; ++d)
      fits = given.shape[d] == want.shape[d];
    if (!fits)
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected %s, got %s", want.name, f.name,
                  describe(want.dtype, want.rank, want.shape).c_str(),
                  describe(given.dtype, given.shape ? std::clamp(given.rank, 0, 32) : 0, given.shape).c_str());
    if (!given.data && want.bytes)
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected data, got NULL", want.name, f.name);
    if (out[static_cast<size_t>(k)])
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s' is given twice", want.name, f.name);
    out[static_cast<size_t>(k)] = &given;
  }
  for (int64_t k = 0; k < f.num_inputs; ++k)
    if (!out[static_cast<size_t>(k)] && !isLearningRate(f.inputs[k]))
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s' is missing: expected %s", f.inputs[k].name, f.name,
                  describe(f.inputs[k].dtype, f.inputs[k].rank, f.inputs[k].shape).c_str());
  return MPT_OK;
}

/// The value of a floating-point scalar.
static double scalarOf(const mpt_tensor_desc &t, const void *data) {
  double exact = 0;
  float value = 0;
  if (t.dtype == MPT_FLOAT64)
    memcpy(&exact, data, sizeof exact);
  else
    toFloat(t.dtype, data, 1, &value);
  return t.dtype == MPT_FLOAT64 ? exact : static_cast<double>(value);
}

mpt_status mpt::rt::pointersOf(mpt_trainer &t, const mpt_function_desc &f, FunctionState &state,
                               const std::vector<const mpt_tensor *> &matched) {
  state.inputPointers.assign(static_cast<size_t>(f.num_inputs), nullptr);
  for (int64_t k = 0; k < f.num_inputs; ++k) {
    const mpt_tensor *given = matched[static_cast<size_t>(k)];
    const mpt_tensor_desc &want = f.inputs[k];
    if (!given)
      continue;
    bool onHost = true;
    if (given->data)
      if (mpt_status status = t.device->locate(given->data, onHost))
        return status;
    if (onHost && isLearningRate(want) && !std::isfinite(scalarOf(want, given->data)))
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected a finite number, got %g", want.name, f.name,
                  scalarOf(want, given->data));
    state.inputPointers[static_cast<size_t>(k)] = given->data ? given->data : t.state.data();
  }
  for (int64_t k = 0; k < f.num_inputs; ++k) {
    const void *&given = state.inputPointers[static_cast<size_t>(k)];
    const mpt_tensor_desc &want = f.inputs[k];
    if (given)
      continue;
    if (!t.hasLearningRate)
      return fail(MPT_INVALID_ARGUMENT, "input 'learning_rate' of '%s' is missing and the model has no default",
                  f.name);
    auto rate = static_cast<float>(t.learningRate);
    if (want.dtype == MPT_FLOAT64)
      memcpy(state.learningRate, &t.learningRate, sizeof t.learningRate);
    else
      fromFloat(want.dtype, &rate, 1, state.learningRate);
    if (!std::isfinite(scalarOf(want, state.learningRate)))
      return fail(MPT_INVALID_ARGUMENT, "input 'learning_rate' of '%s': expected a rate within the range of %s, got %g",
                  f.name, nameOf(want.dtype), t.learningRate);
    given = state.learningRate;
  }
  return MPT_OK;
}
