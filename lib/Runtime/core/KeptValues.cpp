// SPDX-License-Identifier: Apache-2.0
// Finding the values that replicas keep, and places for them.
#include "core/KeptValues.h"

#include "core/Replicas.h"
#include "core/Types.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

bool isSame(const mpt_tensor_desc &a, const mpt_tensor_desc &b) {
  return a.dtype == b.dtype && a.rank == b.rank && a.bytes == b.bytes && std::equal(a.shape, a.shape + a.rank, b.shape);
}

} // namespace

mpt_status KeptValues::prepare(Device &device, const StepLayout &layout) {
  std::map<std::string, const mpt_tensor_desc *, std::less<>> tables;
  made.resize(layout.phases.size());
  for (size_t phase = 0; phase < layout.phases.size(); ++phase) {
    const mpt_function_desc &f = *layout.phases[phase];
    for (int64_t i = 0; i < f.num_inputs; ++i) {
      if (!isKept(f.inputs[i]))
        continue;
      auto value = values.find(f.inputs[i].name);
      if (value == values.end() || value->second.made == phase || !isSame(f.inputs[i], *tables[f.inputs[i].name]))
        return fail(MPT_BAD_FILE, "'%s' takes '%s', which no function before it makes", f.name, f.inputs[i].name);
      value->second.last = phase;
    }
    for (int64_t i = 0; i < f.num_outputs; ++i) {
      const mpt_tensor_desc &output = f.outputs[i];
      if (!isKept(output))
        continue;
      const int64_t stride = roundUp(output.bytes, valueAlignment);
      auto [value, isNew] = values.try_emplace(output.name, Value{phase, phase, i, stride, stride * layout.local, -1});
      if (!isNew)
        return fail(MPT_BAD_FILE, "'%s' makes '%s', which a function before it has made", f.name, output.name);
      tables[output.name] = &output;
      made[phase].push_back(&value->second);
    }
  }
  const int64_t bytes = assignOffsets();
  if (bytes && !block.allocate(device, bytes))
    return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes that replicas keep between their meetings%s",
                static_cast<long long>(bytes), device.freeMemory().c_str());
  return MPT_OK;
}

/// The largest first, each at the lowest place that is free while it lives. Returns the bytes of all.
int64_t KeptValues::assignOffsets() {
  std::vector<Value *> order, placed;
  for (auto &[name, value] : values)
    order.push_back(&value);
  std::stable_sort(order.begin(), order.end(), [](const Value *a, const Value *b) { return a->bytes > b->bytes; });
  int64_t end = 0;
  for (Value *value : order) {
    int64_t offset = 0;
    for (const Value *other : placed) { // by their offsets
      // While one replica makes a value, the next one may still read another for the last time.
      const bool together = value->made <= other->last && other->made <= value->last;
      if (together && offset + value->bytes > other->offset)
        offset = std::max(offset, other->offset + other->bytes);
    }
    value->offset = offset;
    end = std::max(end, offset + value->bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), value,
                                   [](const Value *a, const Value *b) { return a->offset < b->offset; }),
                  value);
  }
  return end;
}

uint8_t *KeptValues::find(const char *name, int64_t k) const {
  auto value = values.find(name);
  return value == values.end() ? nullptr : block.data() + value->second.offset + k * value->second.stride;
}

void KeptValues::place(size_t phase, int64_t k, std::vector<void *> &outputs) const {
  for (const Value *value : made[phase])
    outputs[static_cast<size_t>(value->output)] = block.data() + value->offset + k * value->stride;
}
