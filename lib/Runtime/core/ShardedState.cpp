// SPDX-License-Identifier: Apache-2.0
// Writing shards before their index, and reading them back as whole tensors.
#include "core/ShardedState.h"

#include "core/AtomicFile.h"
#include "core/HostMemory.h"
#include "core/Trainer.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dirent.h>
#include <sys/random.h>
#include <unistd.h>

using namespace mpt::rt;

namespace {

constexpr size_t digits = 16;
constexpr int64_t mostShards = 32767;

bool isHex(const std::string &text) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

std::string shardFile(const std::string &path, const std::string &generation, int64_t shard) {
  return path + "." + generation + "." + std::to_string(shard);
}

/// Whether a name goes on behind the generation as a shard's does: .3, or, while it is written, .3.tmp-100-7.
bool isShard(const std::string &rest) {
  size_t end = rest.find_first_not_of("0123456789", 1);
  return rest[0] == '.' && end != 1 && (end == std::string::npos || rest.compare(end, 5, ".tmp-") == 0);
}

/// Removes shards of `path` that no index names any more: shards of other generations, also of ranks that were killed.
void removeOthers(const std::string &path, const std::string &generation) {
  size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash ? path.substr(0, slash) : "/";
  const std::string prefix = (slash == std::string::npos ? path : path.substr(slash + 1)) + ".";
  DIR *dir = opendir(folder.c_str());
  if (!dir)
    return;
  std::vector<std::string> stale;
  while (dirent *entry = readdir(dir)) {
    std::string name = entry->d_name;
    if (name.compare(0, prefix.size(), prefix) != 0 || name.size() < prefix.size() + digits + 2)
      continue;
    std::string of = name.substr(prefix.size(), digits), shard = name.substr(prefix.size() + digits);
    if (isHex(of) && of != generation && isShard(shard))
      stale.push_back(std::string(folder).append("/").append(name));
  }
  closedir(dir);
  for (const std::string &file : stale)
    unlink(file.c_str());
}

/// A rank's report on its shard to the others.
struct Written {
  int64_t status;
  uint64_t checksum;
};

/// This rank's shards as a file.
Written writeShard(const mpt_trainer &t, const uint8_t *state, const std::string &file, const std::string &generation,
                   int rank, int ranks) {
  const mpt_module_desc &m = *t.model->desc;
  std::vector<std::unique_ptr<Memory>> rows;
  std::vector<SafeTensorsItem> items;
  uint64_t sum = 0;
  for (int64_t i = 0; i < m.num_state; ++i) {
    if (!t.shards.divides(i))
      continue;
    const int64_t bytes = t.shards.localBytes(i);
    rows.push_back(allocateHost(bytes));
    if (!rows.back())
      return {
          fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of '%s'", static_cast<long long>(bytes), m.state[i].name),
          0};
    t.shards.join(i, state, rows.back()->start);
    sum = checksumOf(rows.back()->start, bytes, sum);
    items.push_back({m.state[i].name, m.state[i].dtype, {bytes / sizeOf(m.state[i].dtype)}, rows.back()->start, bytes});
  }
  mpt_status status = writeSafeTensors(file.c_str(), items,
                                       {{"format", "mpt-shard"},
                                        {"fingerprint", m.fingerprint},
                                        {"generation", generation},
                                        {"shard", std::to_string(rank)},
                                        {"shards", std::to_string(ranks)}});
  return {status, sum};
}

mpt_status writeIndex(const mpt_trainer &t, const uint8_t *state, const char *path, const std::string &generation,
                      const std::vector<Written> &shards) {
  const mpt_module_desc &m = *t.model->desc;
  std::vector<SafeTensorsItem> items;
  for (int64_t i = 0; i < m.num_state; ++i)
    if (!t.shards.divides(i))
      items.push_back(
          {m.state[i].name, m.state[i].dtype, shapeOf(m.state[i]), state + m.state[i].offset, m.state[i].bytes});
  std::string checksums;
  for (const Written &shard : shards)
    checksums += (checksums.empty() ? "" : ",") + textOf(shard.checksum);
  return writeSafeTensors(path, items,
                          {{"format", "mpt-index"},
                           {"model", m.name},
                           {"fingerprint", m.fingerprint},
                           {"abi", std::to_string(m.abi_version)},
                           {"step", stepOf(m, state)},
                           {"generation", generation},
                           {"shards", std::to_string(shards.size())},
                           {"checksums", checksums},
                           {"checksum", checksumOfState(t, state)}});
}

} // namespace

mpt_status mpt::rt::saveShards(const mpt_trainer &t, const char *given) {
  const std::string behind = behindLinks(given); // beside which the shards lie
  const char *path = behind.c_str();
  World *world = t.replicas->ranks();
  const int rank = world ? world->rank() : 0, ranks = world ? world->size() : 1;
  std::unique_ptr<Memory> copy;
  const uint8_t *state = nullptr;
  mpt_status status = hostState(t, copy, state);
  uint64_t drawn = 0;
  if (rank == 0 && getrandom(&drawn, sizeof drawn, 0) != sizeof drawn && !status)
    status = fail(MPT_IO_ERROR, "cannot draw a random number for '%s'", path);
  const std::string why = status ? mpt_last_error() : "";
  if (world)
    if (mpt_status lost = world->broadcast(0, &drawn, sizeof drawn))
      return lost;
  const std::string generation = textOf(drawn), own = shardFile(path, generation, rank);
  Written mine{status, 0};
  if (!status)
    mine = writeShard(t, state, own, generation, rank, ranks);
  const std::string problem = status ? why : mine.status ? mpt_last_error() : "";
  std::vector<Written> all(static_cast<size_t>(ranks));
  all[static_cast<size_t>(rank)] = mine;
  if (world)
    if (mpt_status lost = world->gather(-1, &all[static_cast<size_t>(rank)], sizeof(Written), all.data()))
      return lost;
  auto failed = std::find_if(all.begin(), all.end(), [](const Written &shard) { return shard.status != 0; });
  if (failed != all.end()) {
    unlink(own.c_str());
    if (mine.status)
      return fail(static_cast<mpt_status>(mine.status), "%s", problem.c_str());
    return fail(static_cast<mpt_status>(failed->status),
                "rank %d could not write its shard of '%s', which its own message explains: the old state stays",
                static_cast<int>(failed - all.begin()), path);
  }
  // No rank goes on before it is known whether the index is there.
  status = t.replicas->followFirst(rank == 0 ? writeIndex(t, state, path, generation, all) : MPT_OK);
  if (status && status != MPT_PEER_LOST)
    unlink(own.c_str());
  else if (!status && rank == 0)
    removeOthers(path, generation);
  return status;
}

mpt_status ShardedReader::open(const SafeTensorsReader &index, const char *file, const mpt_module_desc &m) {
  path = behindLinks(file);
  const std::string generation = index.metadata("generation"), count = index.metadata("shards");
  const bool counts = !count.empty() && count.size() < 6 && count.find_first_not_of("0123456789") == std::string::npos;
  const int64_t ranks = counts ? std::stoll(count) : 0;
  if (!isHex(generation) || ranks < 1 || ranks > mostShards)
    return fail(MPT_BAD_FILE, "'%s': expected a generation of 16 hexadecimal digits and 1 to %lld shards", file,
                static_cast<long long>(mostShards));
  std::string list = index.metadata("checksums") + ",";
  for (size_t end; (end = list.find(',')) != std::string::npos; list.erase(0, end + 1))
    expected.push_back(list.substr(0, end));
  if (static_cast<int64_t>(expected.size()) != ranks || !std::all_of(expected.begin(), expected.end(), isHex))
    return fail(MPT_BAD_FILE, "'%s': expected checksums of %lld shards", file, static_cast<long long>(ranks));
  sums.assign(expected.size(), 0);
  for (int64_t r = 0; r < ranks; ++r) {
    const std::string name = shardFile(path, generation, r);
    shards.push_back(std::make_unique<SafeTensorsReader>());
    if (mpt_status status = shards.back()->open(name.c_str()))
      return status;
    const SafeTensorsReader &shard = *shards.back();
    if (shard.metadata("generation") != generation || shard.metadata("fingerprint") != m.fingerprint ||
        shard.metadata("shard") != std::to_string(r) || shard.metadata("shards") != count)
      return fail(MPT_BAD_FILE, "'%s': expected shard %lld of %lld of the state '%s'", name.c_str(),
                  static_cast<long long>(r), static_cast<long long>(ranks), file);
  }
  return MPT_OK;
}

mpt_status ShardedReader::read(const mpt_tensor_desc &t, uint8_t *out) {
  int64_t done = 0, size = -1;
  std::vector<uint8_t> rows;
  for (size_t r = 0; r < shards.size(); ++r) {
    const SafeTensorsReader::Entry *entry = shards[r]->find(t.name);
    if (!entry || entry->dtype != t.dtype || entry->shape.size() != 1 || (size >= 0 && entry->bytes != size))
      return fail(MPT_INCOMPATIBLE, "'%s': expected elements of '%s' of type %s in shard %zu, as many as in the others",
                  path.c_str(), t.name, nameOf(t.dtype), r);
    size = entry->bytes;
    // A file cannot make this larger than itself.
    rows.resize(static_cast<size_t>(size));
    if (mpt_status status = shards[r]->read(*entry, rows.data()))
      return status;
    sums[r] = checksumOf(rows.data(), size, sums[r]);
    const int64_t there = std::min(size, t.bytes - done);
    memcpy(out + done, rows.data(), static_cast<size_t>(there));
    done += there;
  }
  if (done < t.bytes)
    return fail(MPT_INCOMPATIBLE, "'%s': expected %lld bytes of '%s' in its shards, got %lld", path.c_str(),
                static_cast<long long>(t.bytes), t.name, static_cast<long long>(done));
  return MPT_OK;
}

mpt_status ShardedReader::finish() const {
  for (size_t r = 0; r < shards.size(); ++r)
    if (textOf(sums[r]) != expected[r])
      return fail(MPT_BAD_FILE, "'%s': expected checksum %s of shard %zu, got %s: the file is damaged", path.c_str(),
                  expected[r].c_str(), r, textOf(sums[r]).c_str());
  return MPT_OK;
}
