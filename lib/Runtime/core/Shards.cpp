// SPDX-License-Identifier: Apache-2.0
// Reading which states are divided, cutting whole tensors and putting them together.
#include "core/Shards.h"

#include "core/Json.h"
#include "core/Replicas.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

mpt_status Shards::read(const mpt_module_desc &m, const Json &manifest, const World *world) {
  module = &m;
  for (int64_t i = 0; i < m.num_state; ++i)
    wholes.push_back(m.state[i]);
  const Json *shards = manifest.find("shards");
  if (!shards)
    return MPT_OK;
  const Json *size = shards->find("bytes"), *states = shards->find("states"), *steps = manifest.find("replicas");
  const Json *count = steps ? steps->find("count") : nullptr;
  if (!size || !size->integral || size->integer <= 0 || size->integer % 64 || size->integer > m.state_bytes ||
      !states || !count || !count->integral || count->integer < 1)
    return fail(MPT_BAD_FILE, "model '%s': expected 'shards' with 'bytes' and 'states' in its manifest", m.name);
  bytes = size->integer;
  replicas = count->integer;
  const int ranks = world ? world->size() : 1, rank = world ? world->rank() : 0;
  if (mpt_status status = checkDivides(m, replicas, ranks))
    return status;
  local = replicas / ranks;
  first = rank * local;
  pieces.resize(static_cast<size_t>(m.num_state));
  shapes.resize(static_cast<size_t>(m.num_state));
  for (int64_t i = 0; i < m.num_state; ++i) {
    const Json *state = states->find(m.state[i].name), *shape = state ? state->find("shape") : nullptr;
    if (!shape)
      continue;
    mpt_tensor_desc &tensor = wholes[static_cast<size_t>(i)];
    auto &extents = shapes[static_cast<size_t>(i)];
    int64_t total = sizeOf(tensor.dtype);
    bool fits = tensor.offset >= m.state_bytes - bytes;
    for (const Json &extent : shape->array) {
      fits = fits && extent.integral && extent.integer >= 0 && !__builtin_mul_overflow(total, extent.integer, &total);
      extents.push_back(extent.integer);
    }
    if (!fits || total > tensor.bytes * replicas)
      return fail(MPT_BAD_FILE, "model '%s': tensor '%s' of its shards makes no sense", m.name, tensor.name);
    tensor.shape = extents.data();
    tensor.rank = static_cast<int64_t>(extents.size());
    tensor.bytes = total;
    pieces[static_cast<size_t>(i)] = true;
  }
  return MPT_OK;
}

void Shards::cutShard(int64_t i, int64_t k, const uint8_t *whole, uint8_t *to) const {
  int64_t from = begin(i) + k * shardBytes(i);
  int64_t there = std::clamp<int64_t>(this->whole(i).bytes - from, 0, shardBytes(i));
  if (there)
    memcpy(to, whole + from, static_cast<size_t>(there));
  memset(to + there, 0, static_cast<size_t>(shardBytes(i) - there));
}

void Shards::cut(int64_t i, const uint8_t *whole, uint8_t *block) const {
  for (int64_t k = 0; k < local; ++k)
    cutShard(i, k, whole, block + module->state[i].offset + shift(k));
}

void Shards::join(int64_t i, const uint8_t *block, uint8_t *out) const {
  for (int64_t k = 0; k < local; ++k)
    memcpy(out + k * shardBytes(i), block + module->state[i].offset + shift(k), static_cast<size_t>(shardBytes(i)));
}

mpt_status Shards::gather(World *world, int64_t i, const uint8_t *block, int root, uint8_t *out) const {
  const bool receives = !world || root < 0 || root == world->rank();
  std::vector<uint8_t> aside(receives ? 0 : static_cast<size_t>(localBytes(i)));
  uint8_t *mine = receives ? out + begin(i) : aside.data();
  join(i, block, mine);
  return gatherJoined(world, i, mine, root, out);
}

mpt_status Shards::gatherJoined(World *world, int64_t i, const uint8_t *mine, int root, uint8_t *out) const {
  return world ? world->gather(root, mine, localBytes(i), out) : MPT_OK;
}
