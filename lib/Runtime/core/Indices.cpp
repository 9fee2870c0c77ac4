// SPDX-License-Identifier: Apache-2.0
// Indices and labels out of range: found on the host, so that nothing has been started when they are refused.
#include "core/Indices.h"

#include "core/Convert.h"
#include "core/Model.h"
#include "core/Types.h"

#include <algorithm>
#include <cmath>
#include <string>

using namespace mpt::rt;

namespace {

/// An element as an index.
int64_t indexOf(int64_t value) { return value; }
int64_t indexOf(uint64_t value) { return value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value); }
template <typename T> int64_t indexOf(T value) { return static_cast<int64_t>(value); }
/// Values beyond 64-bit integers, and NaN, are out of every range but the full one.
int64_t indexOf(double value) {
  if (!(std::fabs(value) < 0x1p63))
    return value > 0 ? INT64_MAX : INT64_MIN;
  return static_cast<int64_t>(value);
}

struct Wrong {
  bool found = false;
  int64_t position = 0, value = 0;
};

bool isLegal(const mpt_index_desc &desc, int64_t value) {
  for (int64_t r = 0; r < desc.num_ranges; ++r)
    if (desc.ranges[2 * r] <= value && value <= desc.ranges[2 * r + 1])
      return true;
  return false;
}

/// `count` elements from `position` on, `step` apart, which `load` gives as integers.
template <typename Load>
void lookAtRow(const mpt_index_desc &desc, int64_t position, int64_t count, int64_t step, Load load, Wrong &wrong) {
  // Nearly every element lies in the widest range; only a row with others is looked at again.
  int64_t low = 0, high = -1;
  for (int64_t r = 0; r < desc.num_ranges; ++r)
    if (low > high || static_cast<uint64_t>(desc.ranges[2 * r + 1]) - static_cast<uint64_t>(desc.ranges[2 * r]) >
                          static_cast<uint64_t>(high) - static_cast<uint64_t>(low)) {
      low = desc.ranges[2 * r];
      high = desc.ranges[2 * r + 1];
    }
  bool outside = false;
  for (int64_t i = 0; i < count; ++i) {
    int64_t value = load(position + i * step);
    outside |= value < low || value > high;
  }
  for (int64_t i = 0; outside && !wrong.found && i < count; ++i)
    if (int64_t value = load(position + i * step); !isLegal(desc, value))
      wrong = {true, position + i * step, value};
}

template <typename Load>
void lookAtBox(const mpt_index_desc &desc, int64_t dimension, int64_t position, Load load, Wrong &wrong) {
  if (dimension == desc.rank)
    return lookAtRow(desc, position, 1, 1, load, wrong);
  if (dimension == desc.rank - 1)
    return lookAtRow(desc, position, desc.shape[dimension], desc.strides[dimension], load, wrong);
  for (int64_t i = 0; i < desc.shape[dimension] && !wrong.found; ++i)
    lookAtBox(desc, dimension + 1, position + i * desc.strides[dimension], load, wrong);
}

template <typename T> Wrong lookAs(const mpt_index_desc &desc, const void *data) {
  Wrong wrong;
  auto load = [=](int64_t i) { return indexOf(elementAt<T>(data, i)); };
  lookAtBox(desc, 0, desc.offset, load, wrong);
  return wrong;
}

Wrong look(const mpt_index_desc &desc, int64_t dtype, const void *data) {
  switch (dtype) {
  case MPT_INT64:
    return lookAs<int64_t>(desc, data);
  case MPT_INT32:
    return lookAs<int32_t>(desc, data);
  case MPT_INT16:
    return lookAs<int16_t>(desc, data);
  case MPT_INT8:
    return lookAs<int8_t>(desc, data);
  case MPT_UINT64:
    return lookAs<uint64_t>(desc, data);
  case MPT_UINT32:
    return lookAs<uint32_t>(desc, data);
  case MPT_UINT16:
    return lookAs<uint16_t>(desc, data);
  case MPT_UINT8:
  case MPT_BOOL:
    return lookAs<uint8_t>(desc, data);
  case MPT_FLOAT64:
    return lookAs<double>(desc, data);
  default:
    break;
  }
  Wrong wrong;
  const auto *bytes = static_cast<const uint8_t *>(data);
  auto load = [=](int64_t i) {
    float value = 0;
    toFloat(dtype, bytes + i * sizeOf(dtype), 1, &value);
    return indexOf(static_cast<double>(value));
  };
  lookAtBox(desc, 0, desc.offset, load, wrong);
  return wrong;
}

/// "0 to 9 or -100".
std::string rangesOf(const mpt_index_desc &desc) {
  std::string text;
  // Single values, such as the label to ignore, behind the ranges.
  for (bool single : {false, true})
    for (int64_t r = 0; r < desc.num_ranges; ++r) {
      int64_t low = desc.ranges[2 * r], high = desc.ranges[2 * r + 1];
      if ((low == high) == single)
        text += (text.empty() ? "" : " or ") + std::to_string(low) + (single ? "" : " to " + std::to_string(high));
    }
  return text.empty() ? "no value" : text;
}

/// "[1,3]": the row-major position in a tensor.
std::string placeOf(const mpt_tensor_desc &t, int64_t position) {
  std::string text;
  for (int64_t d = t.rank; d-- > 0; position /= std::max<int64_t>(t.shape[d], 1))
    text = std::to_string(position % std::max<int64_t>(t.shape[d], 1)) + (text.empty() ? "" : ",") + text;
  return "[" + text + "]";
}

} // namespace

mpt_status mpt::rt::checkIndexTable(const mpt_module_desc &m, const mpt_function_desc &f) {
  for (int64_t i = 0; i < f.num_indices; ++i) {
    const mpt_index_desc &desc = f.indices[i];
    bool ok = desc.input >= 0 && desc.input < f.num_inputs && desc.node && desc.offset >= 0 && desc.num_ranges >= 0;
    int64_t last = desc.offset, step = 0;
    for (int64_t d = 0; ok && d < desc.rank; ++d)
      ok = desc.shape[d] > 0 && desc.strides[d] >= 0 &&
           !__builtin_mul_overflow(desc.shape[d] - 1, desc.strides[d], &step) &&
           !__builtin_add_overflow(last, step, &last);
    if (!ok || last >= elementsOf(f.inputs[desc.input]))
      return fail(MPT_BAD_FILE, "model '%s': index table of '%s' makes no sense", m.name, f.name);
  }
  return MPT_OK;
}

mpt_status mpt::rt::checkIndices(Device &device, const mpt_function_desc &f, const std::vector<const void *> &inputs) {
  std::vector<uint8_t> copy;
  int64_t copied = -1;
  for (int64_t i = 0; i < f.num_indices; ++i) {
    const mpt_index_desc &desc = f.indices[i];
    const mpt_tensor_desc &input = f.inputs[desc.input];
    const void *data = inputs[static_cast<size_t>(desc.input)];
    bool onHost = true;
    if (mpt_status status = device.locate(data, onHost))
      return status;
    if (!onHost && copied != desc.input) {
      copy.resize(static_cast<size_t>(input.bytes));
      if (mpt_status status = device.fetch({copy.data(), data, input.bytes}))
        return status;
      copied = desc.input;
    }
    if (Wrong wrong = look(desc, input.dtype, onHost ? data : copy.data()); wrong.found)
      return fail(MPT_INVALID_ARGUMENT, "input '%s' of '%s': expected %s for node '%.200s', got %lld at %s", input.name,
                  f.name, rangesOf(desc).c_str(), desc.node, static_cast<long long>(wrong.value),
                  placeOf(input, wrong.position).c_str());
  }
  return MPT_OK;
}
