// SPDX-License-Identifier: Apache-2.0
// Parameters and state: reading and writing by name.
#include "core/Convert.h"
#include "core/HostMemory.h"
#include "core/SafeTensors.h"
#include "core/ShardedState.h"
#include "core/Trainer.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

mpt_status find(mpt_trainer *t, const char *name, const void *data, int64_t count, int64_t &i) {
  if (!t || !name || !data)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer, a name and data, got NULL");
  auto it = t->index.find(name);
  if (it == t->index.end())
    return fail(MPT_NOT_FOUND, "model '%s' has no parameter or state '%s'", t->model->desc->name, name);
  i = it->second;
  if (elementsOf(t->shards.whole(i)) != count)
    return fail(MPT_INVALID_ARGUMENT, "'%s': expected %lld values for %s, got %lld", name,
                static_cast<long long>(elementsOf(t->shards.whole(i))),
                describe(t->tensor(i).dtype, t->shards.whole(i).rank, t->shards.whole(i).shape).c_str(),
                static_cast<long long>(count));
  return MPT_OK;
}

} // namespace

std::string mpt::rt::stepOf(const mpt_module_desc &m, const uint8_t *state) {
  for (int64_t i = 0; i < m.num_state; ++i)
    if (m.state[i].role == MPT_ROLE_COUNTER && m.state[i].bytes >= sizeOf(m.state[i].dtype)) {
      float value = 0;
      const uint8_t *data = state + m.state[i].offset;
      if (m.state[i].dtype == MPT_INT64)
        return std::to_string(*reinterpret_cast<const int64_t *>(data));
      toFloat(m.state[i].dtype, data, 1, &value);
      return std::to_string(static_cast<int64_t>(value));
    }
  return "0";
}

std::string mpt::rt::checksumOfState(const mpt_trainer &t, const uint8_t *state) {
  const mpt_module_desc &m = *t.model->desc;
  uint64_t sum = 0;
  for (int64_t i = 0; i < m.num_state; ++i)
    if (!t.shards.divides(i))
      sum = checksumOf(state + m.state[i].offset, m.state[i].bytes, sum);
  return textOf(sum);
}

mpt_status mpt::rt::hostState(const mpt_trainer &t, std::unique_ptr<Memory> &copy, const uint8_t *&out) {
  out = t.state.data();
  if (t.device->sharesHostMemory())
    return t.device->synchronize();
  copy = allocateHost(t.state.bytes());
  if (!copy)
    return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of state", static_cast<long long>(t.state.bytes()));
  Transfer whole{copy->start, t.state.data(), t.state.bytes()};
  out = copy->start;
  return t.device->download(&whole, 1);
}

mpt_status mpt::rt::abandoned(const mpt_trainer &t, mpt_status status) {
  World *world = t.replicas ? t.replicas->ranks() : nullptr;
  if (!world || !t.shards.any())
    return status;
  const std::string why = mpt_last_error();
  world->abandon(why.c_str());
  return fail(status, "%s", why.c_str());
}

namespace {

/// Where this process's shards of a divided tensor lie, beside places for them one behind the other at `joined`.
std::vector<Transfer> partsOf(const mpt_trainer &t, int64_t i, uint8_t *joined, bool toDevice) {
  std::vector<Transfer> parts;
  for (int64_t k = 0; k < t.shards.local; ++k) {
    uint8_t *state = t.at(i) + t.shards.shift(k), *host = joined + k * t.shards.shardBytes(i);
    parts.push_back({toDevice ? state : host, toDevice ? host : state, t.shards.shardBytes(i)});
  }
  return parts;
}

/// Collective: a divided tensor, whole.
mpt_status collect(const mpt_trainer &t, int64_t i, std::unique_ptr<Memory> &out) {
  mpt_status status = MPT_OK;
  if (!(out = allocateHost(t.shards.paddedBytes(i))))
    status = fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of '%s'",
                  static_cast<long long>(t.shards.paddedBytes(i)), t.tensor(i).name);
  uint8_t *mine = out ? out->start + t.shards.begin(i) : nullptr;
  if (!status) {
    std::vector<Transfer> parts = partsOf(t, i, mine, false);
    status = t.device->download(parts.data(), parts.size());
  }
  if (status)
    return abandoned(t, status);
  return t.shards.gatherJoined(t.replicas ? t.replicas->ranks() : nullptr, i, mine, -1, out->start);
}

/// Writes a tensor, or this process's part of a divided one, from the bytes of the whole.
mpt_status put(mpt_trainer &t, int64_t i, const void *raw) {
  if (!t.shards.divides(i)) {
    Transfer whole{t.at(i), raw, t.tensor(i).bytes};
    return t.device->upload(&whole, 1);
  }
  std::vector<uint8_t> shards(static_cast<size_t>(t.shards.localBytes(i)));
  for (int64_t k = 0; k < t.shards.local; ++k)
    t.shards.cutShard(i, k, static_cast<const uint8_t *>(raw), shards.data() + k * t.shards.shardBytes(i));
  std::vector<Transfer> parts = partsOf(t, i, shards.data(), true);
  return t.device->upload(parts.data(), parts.size());
}

} // namespace

extern "C" {

mpt_status mpt_trainer_state(mpt_trainer *trainer, int64_t i, mpt_tensor *out, mpt_role *role) {
  if (!trainer || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  if (i < 0 || i >= trainer->model->desc->num_state)
    return fail(MPT_NOT_FOUND, "the state has %lld tensors", static_cast<long long>(trainer->model->desc->num_state));
  // The shards of a divided tensor are no tensor of its shape.
  *out = viewOf(trainer->shards.whole(i), trainer->shards.divides(i) ? nullptr : trainer->at(i));
  if (role)
    *role = static_cast<mpt_role>(trainer->tensor(i).role);
  return MPT_OK;
}

mpt_status mpt_trainer_parameter(mpt_trainer *trainer, int64_t i, mpt_tensor *out) {
  if (!trainer || !out)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a place for the result, got NULL");
  int64_t seen = 0;
  for (int64_t k = 0; k < trainer->model->desc->num_state; ++k)
    if (trainer->tensor(k).role == MPT_ROLE_PARAMETER && seen++ == i)
      return mpt_trainer_state(trainer, k, out, nullptr);
  return fail(MPT_NOT_FOUND, "the model has %lld parameters", static_cast<long long>(seen));
}

/// Tensor `i` of the state, where `data` has as many bytes as all shards of it; `expected` begins the refusal.
static mpt_status wholeState(mpt_trainer *trainer, int64_t i, const void *data, int64_t bytes, const char *expected,
                             mpt_tensor &tensor) {
  if (mpt_status status = mpt_trainer_state(trainer, i, &tensor, nullptr))
    return status;
  int64_t want = trainer->shards.whole(i).bytes;
  if (!data || bytes != want)
    return fail(MPT_INVALID_ARGUMENT, "'%s': expected %s%lld bytes, got %lld", tensor.name, expected,
                static_cast<long long>(want), static_cast<long long>(bytes));
  return MPT_OK;
}

mpt_status mpt_trainer_read(mpt_trainer *trainer, int64_t i, void *data, int64_t bytes) {
  return guarded([&] {
    mpt_tensor tensor;
    if (mpt_status status = wholeState(trainer, i, data, bytes, "a place for ", tensor))
      return status;
    if (trainer->shards.divides(i)) {
      std::unique_ptr<Memory> whole;
      if (mpt_status status = collect(*trainer, i, whole))
        return status;
      memcpy(data, whole->start, static_cast<size_t>(bytes));
      return MPT_OK;
    }
    Transfer whole{data, tensor.data, bytes};
    return trainer->device->download(&whole, 1);
  });
}

mpt_status mpt_trainer_write(mpt_trainer *trainer, int64_t i, const void *data, int64_t bytes) {
  return guarded([&] {
    mpt_tensor tensor;
    if (mpt_status status = wholeState(trainer, i, data, bytes, "", tensor))
      return status;
    if (trainer->replicas)
      trainer->replicas->edited(tensor.name, data, bytes);
    return put(*trainer, i, data);
  });
}

mpt_status mpt_trainer_get(mpt_trainer *trainer, const char *name, float *data, int64_t count) {
  return guarded([&] {
    int64_t i = 0;
    if (mpt_status status = find(trainer, name, data, count, i))
      return status;
    if (auto master = trainer->masters.find(name); master != trainer->masters.end())
      i = master->second;
    const mpt_tensor_desc &t = trainer->tensor(i);
    if (trainer->shards.divides(i)) {
      std::unique_ptr<Memory> whole;
      if (mpt_status status = collect(*trainer, i, whole))
        return status;
      toFloat(t.dtype, whole->start, count, data);
      return MPT_OK;
    }
    if (trainer->device->sharesHostMemory()) {
      toFloat(t.dtype, trainer->at(i), count, data);
      return MPT_OK;
    }
    std::vector<uint8_t> raw(static_cast<size_t>(t.bytes));
    Transfer whole{raw.data(), trainer->at(i), t.bytes};
    if (mpt_status status = trainer->device->download(&whole, 1))
      return status;
    toFloat(t.dtype, raw.data(), count, data);
    return MPT_OK;
  });
}

mpt_status mpt_trainer_set(mpt_trainer *trainer, const char *name, const float *data, int64_t count) {
  return guarded([&] {
    int64_t i = 0;
    if (mpt_status status = find(trainer, name, data, count, i))
      return status;
    auto write = [&](int64_t i) {
      const mpt_tensor_desc &t = trainer->tensor(i);
      if (!trainer->shards.divides(i) && trainer->device->sharesHostMemory()) {
        fromFloat(t.dtype, data, count, trainer->at(i));
        return MPT_OK;
      }
      std::vector<uint8_t> raw(static_cast<size_t>(trainer->shards.whole(i).bytes));
      fromFloat(t.dtype, data, count, raw.data());
      return put(*trainer, i, raw.data());
    };
    if (trainer->replicas)
      trainer->replicas->edited(name, data, count * static_cast<int64_t>(sizeof *data));
    // A master and its narrow copy change together, whichever of them is named.
    if (trainer->tensor(i).role == MPT_ROLE_MASTER)
      if (auto narrow = trainer->index.find(trainer->tensor(i).of); narrow != trainer->index.end())
        if (mpt_status status = write(narrow->second))
          return status;
    if (mpt_status status = write(i))
      return status;
    auto master = trainer->masters.find(name);
    return master != trainer->masters.end() ? write(master->second) : MPT_OK;
  });
}

} // extern "C"
