// SPDX-License-Identifier: Apache-2.0
// Looks at values for infinities and NaN, and says where the first ones came from.
#include "core/Finite.h"

#include "core/Context.h"
#include "core/Convert.h"
#include "core/Device.h"
#include "core/Error.h"
#include "core/Replicas.h"
#include "core/Shards.h"
#include "core/Types.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace mpt::rt {

namespace {

void add(FiniteCounts &counts, double x) {
  ++counts.count;
  if (std::isnan(x)) {
    ++counts.nans;
  } else if (std::isinf(x)) {
    ++counts.infinities;
  } else if (x != 0) {
    double magnitude = std::fabs(x);
    counts.smallest = counts.smallest == 0 ? magnitude : std::min(counts.smallest, magnitude);
    counts.largest = std::max(counts.largest, magnitude);
  }
}

/// `count` values one after the other.
void addDense(FiniteCounts &counts, int64_t dtype, const void *data, int64_t count) {
  if (dtype == MPT_FLOAT64) {
    for (int64_t i = 0; i < count; ++i)
      add(counts, elementAt<double>(data, i));
    return;
  }
  constexpr int64_t piece = 1024;
  float values[piece];
  const auto *bytes = static_cast<const uint8_t *>(data);
  for (int64_t done = 0; done < count; done += piece) {
    int64_t n = std::min(piece, count - done);
    toFloat(dtype, bytes + done * sizeOf(dtype), n, values);
    for (int64_t i = 0; i < n; ++i)
      add(counts, static_cast<double>(values[i]));
  }
}

void addStrided(FiniteCounts &counts, const mpt_check_desc &desc, const uint8_t *data, int64_t dimension) {
  if (dimension == desc.rank)
    return addDense(counts, desc.dtype, data, 1);
  if (dimension == desc.rank - 1 && desc.strides[dimension] == 1)
    return addDense(counts, desc.dtype, data, desc.shape[dimension]);
  for (int64_t i = 0; i < desc.shape[dimension]; ++i)
    addStrided(counts, desc, data + i * desc.strides[dimension] * sizeOf(desc.dtype), dimension + 1);
}

/// Of the memory from the first value to behind the last.
int64_t spanBytes(const mpt_check_desc &desc) {
  int64_t span = 1;
  for (int64_t i = 0; i < desc.rank; ++i)
    span += (desc.shape[i] - 1) * desc.strides[i];
  return span * sizeOf(desc.dtype);
}

double largestOf(int64_t dtype) {
  switch (dtype) {
  case MPT_FLOAT16:
    return 65504;
  case MPT_BFLOAT16:
    return 0x1.fep127;
  case MPT_FLOAT8E4M3FN:
    return 448;
  case MPT_FLOAT8E5M2:
    return 57344;
  case MPT_FLOAT64:
    return 0x1.fffffffffffffp1023;
  default:
    return 0x1.fffffep127;
  }
}

/// A node's name as a regular expression.
std::string escaped(const char *name) {
  std::string text;
  for (; *name; ++name) {
    if (std::string("()^$|*+?.[]\\{}").find(*name) != std::string::npos)
      text += '\\';
    text += *name;
  }
  return text;
}

} // namespace

/// A device's values are brought to the host only where it has seen that there is something to count.
mpt_status FiniteCheck::count(const mpt_check_desc &desc, const void *data, FiniteCounts &found) {
  found = {};
  for (int64_t i = 0; i < desc.rank; ++i)
    if (desc.shape[i] == 0)
      return MPT_OK;
  bool nans = true, infinities = true;
  if (mpt_status status = device.findNonfinite(desc, data, nans, infinities))
    return status;
  if (!nans && (!infinities || (desc.flags & MPT_CHECK_INFINITIES_MEANT)))
    return MPT_OK;
  std::vector<uint8_t> copy;
  if (!device.sharesHostMemory()) {
    copy.resize(static_cast<size_t>(spanBytes(desc)));
    Transfer whole{copy.data(), data, spanBytes(desc)};
    if (mpt_status status = device.download(&whole, 1))
      return status;
    data = copy.data();
  }
  addStrided(found, desc, static_cast<const uint8_t *>(data), 0);
  return MPT_OK;
}

mpt_status FiniteCheck::count(const mpt_tensor_desc &tensor, const void *data, FiniteCounts &found) {
  found = {};
  if (!isFloating(tensor.dtype) || !data)
    return MPT_OK;
  return count({-1, tensor.dtype, 0, 1, {tensor.bytes / sizeOf(tensor.dtype)}, {1}}, data, found);
}

void FiniteCounts::add(const FiniteCounts &other) {
  infinities += other.infinities;
  nans += other.nans;
  count += other.count;
  smallest = smallest == 0 ? other.smallest : other.smallest == 0 ? smallest : std::min(smallest, other.smallest);
  largest = std::max(largest, other.largest);
}

mpt_status FiniteCheck::countState(const mpt_tensor_desc &tensor, const Shards &shards, int64_t i, const uint8_t *state,
                                   FiniteCounts &found) {
  FiniteCounts all;
  for (int64_t k = 0; k < (shards.divides(i) ? shards.local : 1); ++k) {
    if (mpt_status status = count(tensor, state + tensor.offset + shards.shift(k), found))
      return status;
    all.add(found);
  }
  found = all;
  return MPT_OK;
}

mpt_status FiniteCheck::begin(const mpt_function_desc &function, const std::vector<const void *> &inputs,
                              const mpt_module_desc &module, const Shards &shards, const uint8_t *state) {
  found = false;
  FiniteCounts counts;
  for (int64_t i = 0; i < function.num_inputs; ++i) {
    if (isExchanged(function.inputs[i]) || isKept(function.inputs[i])) // of a step of replicas, which goes on
      continue;
    if (mpt_status status = count(function.inputs[i], inputs[static_cast<size_t>(i)], counts))
      return status;
    if (!counts.allFinite())
      return fail(MPT_NOT_FINITE, "input '%s' of '%s' holds %lld infinities and %lld NaN in %lld values: mend the data",
                  function.inputs[i].name, function.name, static_cast<long long>(counts.infinities),
                  static_cast<long long>(counts.nans), static_cast<long long>(counts.count));
  }
  for (int64_t i = 0; i < module.num_state; ++i) {
    const mpt_tensor_desc &tensor = module.state[i];
    if (tensor.role != MPT_ROLE_PARAMETER && tensor.role != MPT_ROLE_FROZEN && tensor.role != MPT_ROLE_MASTER)
      continue;
    if (mpt_status status = countState(tensor, shards, i, state, counts))
      return status;
    if (!counts.allFinite())
      return fail(MPT_NOT_FINITE,
                  "'%s' holds %lld infinities and %lld NaN in %lld values before this run of '%s': load an earlier "
                  "checkpoint, or set the parameter again",
                  tensor.name, static_cast<long long>(counts.infinities), static_cast<long long>(counts.nans),
                  static_cast<long long>(counts.count), function.name);
  }
  return MPT_OK;
}

mpt_status FiniteCheck::look(const mpt_check_desc &desc, const void *data) {
  FiniteCounts seen;
  if (found)
    return MPT_OK;
  if (mpt_status status = count(desc, data, seen))
    return status;
  found = seen.nans > 0 || (seen.infinities > 0 && !(desc.flags & MPT_CHECK_INFINITIES_MEANT));
  if (found) {
    where = desc;
    counts = seen;
  }
  return MPT_OK;
}

std::string FiniteCheck::describe(const mpt_function_desc &function, bool skipped, double lossScale) const {
  char line[512];
  const bool known = where.call < function.num_calls;
  const char *node = known ? function.calls[where.call].node : "", *what = known ? function.calls[where.call].what : "";
  snprintf(line, sizeof line, "node '%.120s' (%.120s) gave %lld infinities and %lld NaN in %lld values of %s", node,
           what, static_cast<long long>(counts.infinities), static_cast<long long>(counts.nans),
           static_cast<long long>(counts.count), nameOf(where.dtype));
  std::string text = line;
  if (counts.largest > 0)
    snprintf(line, sizeof line, "; the finite ones reach from %.3g to %.3g, the type holds %.6g", counts.smallest,
             counts.largest, largestOf(where.dtype));
  else
    snprintf(line, sizeof line, "; none is finite and not zero, the type holds %.6g", largestOf(where.dtype));
  text += line;
  if (lossScale != 1) {
    snprintf(line, sizeof line, "; the loss scale was %g", lossScale);
    text += line;
  }
  bool narrow = sizeOf(where.dtype) < 4;
  std::string keep = "--keep-f32='" + escaped(node) + "'";
  if (!narrow)
    return text + "; the value leaves FP32 as well, so no cast is to blame: look at the inputs, clip with --clip-norm, "
                  "or lower "
                  "the learning rate";
  return text + (skipped
                     ? "; nothing to do, if it happens now and then: the scale is lowered; " + keep + " if it goes on"
                     : "; try: " + keep);
}

mpt_status FiniteCheck::end(const mpt_function_desc &function, const std::vector<void *> &outputs, bool skipped,
                            double lossScale) {
  auto run = static_cast<long long>(runs[function.name]++);
  bool bad = skipped;
  FiniteCounts seen;
  for (int64_t i = 0; i < function.num_outputs && !bad; ++i) {
    if (mpt_status status = count(function.outputs[i], outputs[static_cast<size_t>(i)], seen))
      return status;
    bad = !seen.allFinite();
  }
  if (!bad || !found)
    return MPT_OK;
  return fail(MPT_NOT_FINITE, "run %lld of '%s': %s", run, function.name,
              describe(function, skipped, lossScale).c_str());
}

} // namespace mpt::rt

extern "C" void mpt_rt_check(mpt_exec *exec, const mpt_check_desc *desc, const void *data) {
  auto *context = exec ? static_cast<mpt::rt::Context *>(exec->runtime) : nullptr;
  if (context && context->finite)
    context->finite->look(*desc, data);
}
