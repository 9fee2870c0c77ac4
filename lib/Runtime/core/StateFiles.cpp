// SPDX-License-Identifier: Apache-2.0
// Files of parameters and state: initial values, saving and loading.
#include "core/Convert.h"
#include "core/HostMemory.h"
#include "core/Json.h"
#include "core/SafeTensors.h"
#include "core/ShardedState.h"
#include "core/Trainer.h"
#include "core/Types.h"
#include "world/World.h"

#include <algorithm>
#include <cstring>

using namespace mpt::rt;

namespace {

/// Reads a file's tensor into a state tensor, converting between floating-point types.
mpt_status readInto(const SafeTensorsReader &file, const SafeTensorsReader::Entry &entry, const mpt_tensor_desc &t,
                    void *out, const char *path) {
  if (entry.shape != shapeOf(t) || (entry.dtype != t.dtype && !(isFloating(entry.dtype) && isFloating(t.dtype))))
    return fail(MPT_INCOMPATIBLE, "'%s': tensor '%s': expected %s, got %s", path, t.name,
                describe(t.dtype, t.rank, t.shape).c_str(),
                describe(entry.dtype, static_cast<int64_t>(entry.shape.size()), entry.shape.data()).c_str());
  if (entry.dtype == t.dtype)
    return file.read(entry, out);
  // In pieces: the process keeps memory that it once had, and a large model's weights would be there twice.
  constexpr int64_t piece = 1 << 16;
  int64_t from = sizeOf(entry.dtype), to = sizeOf(t.dtype);
  std::vector<char> raw(static_cast<size_t>(piece * from));
  std::vector<float> wide(static_cast<size_t>(piece));
  for (int64_t begin = 0, total = elementsOf(t); begin < total; begin += piece) {
    int64_t count = std::min(piece, total - begin);
    if (mpt_status status = file.read({entry.dtype, {count}, entry.begin + begin * from, count * from}, raw.data()))
      return status;
    toFloat(entry.dtype, raw.data(), count, wide.data());
    fromFloat(t.dtype, wide.data(), count, static_cast<char *>(out) + begin * to);
  }
  return MPT_OK;
}

/// The name under which a file may hold more of `t` than under its own: its FP32 master, beside which a narrow copy has
/// the name. Empty where `t` is no parameter, or the master is a state of its own.
std::string masterOf(const mpt_trainer &trainer, const mpt_tensor_desc &t) {
  const std::string master = std::string(t.name) + ".master";
  return t.role == MPT_ROLE_PARAMETER && t.dtype == MPT_FLOAT32 && !trainer.index.count(master) ? master : "";
}

/// The tensor of a file that holds `t`: a file with one copy of a parameter, narrow or wide, serves both.
const SafeTensorsReader::Entry *sourceOf(const mpt_trainer &trainer, const mpt_tensor_desc &t,
                                         const SafeTensorsReader &file) {
  if (std::string master = masterOf(trainer, t); !master.empty())
    if (const SafeTensorsReader::Entry *entry = file.find(master); entry && entry->dtype == t.dtype)
      return entry;
  if (const SafeTensorsReader::Entry *entry = file.find(t.name))
    return entry;
  if (t.role == MPT_ROLE_MASTER)
    return file.find(t.of);
  auto master = trainer.masters.find(t.name);
  return master == trainer.masters.end() ? nullptr : file.find(trainer.tensor(master->second).name);
}

/// State that training creates by itself starts at zero where the weights file has none.
bool startsAtZero(int64_t role) {
  return role == MPT_ROLE_SLOT || role == MPT_ROLE_ACCUMULATOR || role == MPT_ROLE_COUNTER || role == MPT_ROLE_RNG;
}

/// The names of the tensors that no step changes, as a JSON array.
std::string unchangedStates(const mpt_module_desc &m) {
  std::string text = "[";
  for (int64_t i = 0; i < m.num_state; ++i)
    if (m.state[i].role == MPT_ROLE_FROZEN || m.state[i].role == MPT_ROLE_CONSTANT) {
      text += text.size() > 1 ? "," : "";
      appendJsonString(text, m.state[i].name);
    }
  return text + "]";
}

/// Writes the whole state. Where parts of it are divided this is collective: the first rank collects them.
mpt_status save(const mpt_trainer &t, const char *path) {
  const mpt_module_desc &m = *t.model->desc;
  const bool writes = !t.replicas || t.replicas->isFirst();
  World *world = t.replicas ? t.replicas->ranks() : nullptr;
  std::unique_ptr<Memory> copy;
  const uint8_t *state = nullptr;
  if (mpt_status status = hostState(t, copy, state))
    return abandoned(t, status);
  std::vector<std::unique_ptr<Memory>> collected;
  std::vector<SafeTensorsItem> items;
  uint64_t sum = 0;
  for (int64_t i = 0; i < m.num_state; ++i) {
    const mpt_tensor_desc &tensor = t.shards.whole(i);
    const uint8_t *data = state + tensor.offset;
    if (t.shards.divides(i)) {
      std::unique_ptr<Memory> whole = writes ? allocateHost(t.shards.paddedBytes(i)) : nullptr;
      if (writes && !whole)
        return abandoned(t, fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of '%s'",
                                 static_cast<long long>(t.shards.paddedBytes(i)), tensor.name));
      if (mpt_status status = t.shards.gather(world, i, state, 0, whole ? whole->start : nullptr))
        return status;
      data = whole ? whole->start : nullptr;
      collected.push_back(std::move(whole));
    }
    if (!writes)
      continue;
    sum = checksumOf(data, tensor.bytes, sum);
    items.push_back({tensor.name, tensor.dtype, shapeOf(tensor), data, tensor.bytes});
  }
  if (!writes)
    return MPT_OK;
  std::vector<std::pair<std::string, std::string>> metadata{{"format", "mpt"},
                                                            {"model", m.name},
                                                            {"fingerprint", m.fingerprint},
                                                            {"abi", std::to_string(m.abi_version)},
                                                            {"step", stepOf(m, state)},
                                                            {"checksum", textOf(sum)}};
  metadata.emplace_back("frozen", unchangedStates(m));
  if (std::string choices = t.device->choices(); !choices.empty())
    metadata.emplace_back("choices", std::move(choices));
  return writeSafeTensors(path, items, metadata);
}

/// A trainer's block, filled with whole tensors in the module's order.
class Filling {
public:
  Filling(const mpt_trainer &trainer, uint8_t *block) : trainer(trainer), block(block) {}

  /// `read` writes the tensor's bytes.
  template <typename Read> mpt_status put(int64_t i, Read read) {
    const mpt_tensor_desc &tensor = trainer.shards.whole(i);
    if (!trainer.shards.divides(i))
      return read(tensor, block + tensor.offset);
    std::unique_ptr<Memory> whole = allocateHost(tensor.bytes); // one tensor at a time
    if (!whole)
      return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of '%s'", static_cast<long long>(tensor.bytes),
                  tensor.name);
    if (mpt_status status = read(tensor, whole->start))
      return status;
    if (trainer.comparesStates)
      divided = checksumOf(whole->start, tensor.bytes, divided);
    trainer.shards.cut(i, whole->start, block);
    return MPT_OK;
  }
  /// Of the whole tensors that were divided, for a world; empty without any.
  std::string checksumOfShards() const { return trainer.shards.any() ? " and " + textOf(divided) : ""; }

private:
  const mpt_trainer &trainer;
  uint8_t *block;
  uint64_t divided = 0;
};

/// A saved state while it is read: one file, or an index beside the files of all ranks.
class SavedState {
public:
  SavedState(const mpt_trainer &trainer, const char *path) : t(trainer), m(*trainer.model->desc), path(path) {}

  /// Refuses the state of another model.
  mpt_status open() {
    if (mpt_status status = file.open(path))
      return status;
    std::string fingerprint = file.metadata("fingerprint");
    if (fingerprint.empty())
      return fail(MPT_BAD_FILE, "'%s' is no saved state: it has no fingerprint", path);
    if (fingerprint != m.fingerprint)
      return fail(MPT_INCOMPATIBLE,
                  "'%s': expected the state of model '%s' (fingerprint %s), got that of '%s' (%s) [mpt-other-state]",
                  path, m.name, m.fingerprint, file.metadata("model").c_str(), fingerprint.c_str());
    isIndex = ShardedReader::isIndex(file);
    return isIndex ? pieces.open(file, path, m) : MPT_OK;
  }

  mpt_status read(const mpt_tensor_desc &tensor, uint8_t *out) {
    const std::string master = masterOf(t, tensor);
    if (isIndex && pieces.has(master.empty() ? tensor.name : master)) {
      mpt_tensor_desc divided = tensor;
      divided.name = master.empty() ? tensor.name : master.c_str();
      isAlike &= master.empty();
      return pieces.read(divided, out);
    }
    const SafeTensorsReader::Entry *entry = sourceOf(t, tensor, file);
    isAlike &= entry && entry == file.find(tensor.name) && entry->dtype == tensor.dtype;
    if (!entry || (entry->dtype != tensor.dtype && !t.masters.count(tensor.name)))
      return fail(MPT_INCOMPATIBLE, "'%s': expected a tensor '%s' of type %s", path, tensor.name, nameOf(tensor.dtype));
    mpt_status status = readInto(file, *entry, tensor, out, path);
    if (!status)
      indexed = checksumOf(out, tensor.bytes, indexed);
    return status;
  }

  /// Once all tensors are read: refuses damaged data.
  mpt_status finish() {
    const std::string checksum = file.metadata("checksum");
    if (!checksum.empty() && !isAlike)
      if (mpt_status status = file.checksum(indexed))
        return status;
    if (!checksum.empty() && checksum != textOf(indexed))
      return fail(MPT_BAD_FILE, "'%s': expected data with checksum %.20s, got %s: the file is damaged", path,
                  checksum.c_str(), textOf(indexed).c_str());
    return isIndex ? pieces.finish() : MPT_OK;
  }
  std::string choices() const { return file.metadata("choices"); }

private:
  const mpt_trainer &t;
  const mpt_module_desc &m;
  const char *path;
  SafeTensorsReader file;
  ShardedReader pieces;
  bool isIndex = false, isAlike = true; // isAlike: the file has the trainer's tensors, and no others in their place
  uint64_t indexed = 0;                 // checksum of the tensors in `file`
};

mpt_status load(mpt_trainer &t, const char *path) {
  SavedState saved(t, path);
  if (mpt_status status = saved.open())
    return status;
  // Everything is read aside first, so that a failure leaves the trainer as it was.
  std::unique_ptr<Memory> fresh = allocateHost(t.state.bytes());
  if (!fresh)
    return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of state", static_cast<long long>(t.state.bytes()));
  Filling filling(t, fresh->start);
  auto read = [&](const mpt_tensor_desc &tensor, uint8_t *out) { return saved.read(tensor, out); };
  for (int64_t i = 0; i < t.model->desc->num_state; ++i)
    if (mpt_status status = filling.put(i, read))
      return status;
  if (mpt_status status = saved.finish())
    return status;
  t.checksumOfShards = filling.checksumOfShards();
  Transfer whole{t.state.data(), fresh->start, t.state.bytes()};
  if (mpt_status status = t.device->upload(&whole, 1))
    return status;
  if (!t.device->takeChoices(saved.choices(), path))
    return MPT_OK;
  for (FunctionState &f : t.functions) {
    f.device.reset(); // before the sites that its graphs use
    for (std::unique_ptr<SiteCache> &site : f.context.sites)
      site.reset();
  }
  return MPT_OK;
}

} // namespace

mpt_status mpt::rt::initializeState(mpt_trainer &trainer, const char *given, bool setSeed, uint64_t seed) {
  const mpt_module_desc &m = *trainer.model->desc;
  std::unique_ptr<Memory> copy;
  uint8_t *host = trainer.state.data();
  if (!trainer.device->sharesHostMemory()) {
    copy = allocateHost(trainer.state.bytes());
    if (!copy)
      return fail(MPT_OUT_OF_MEMORY, "no memory for %lld bytes of state",
                  static_cast<long long>(trainer.state.bytes()));
    host = copy->start;
  }
  SafeTensorsReader file;
  const std::string beside = given ? "" : trainer.model->weightsFile();
  const char *weights = given ? given : beside.c_str();
  const bool isOpen = !given && trainer.model->weights >= 0;
  if (mpt_status status = isOpen ? file.open(trainer.model->weights, weights) : file.open(weights))
    return status;
  std::string fingerprint = file.metadata("fingerprint");
  if (!fingerprint.empty() && fingerprint != m.fingerprint)
    return fail(MPT_INCOMPATIBLE, "'%s': expected weights of model '%s' (fingerprint %s), got %s", weights, m.name,
                m.fingerprint, fingerprint.c_str());
  Filling filling(trainer, host);
  for (int64_t i = 0; i < m.num_state; ++i) {
    const mpt_tensor_desc &t = trainer.shards.whole(i);
    const SafeTensorsReader::Entry *entry = sourceOf(trainer, t, file);
    mpt_status status = MPT_OK;
    if (entry)
      status = filling.put(
          i, [&](const mpt_tensor_desc &, uint8_t *out) { return readInto(file, *entry, t, out, weights); });
    else if (startsAtZero(t.role))
      status = filling.put(i, [&](const mpt_tensor_desc &, uint8_t *out) {
        memset(out, 0, static_cast<size_t>(t.bytes)); // a trainer that is reset holds other values
        return MPT_OK;
      });
    else
      return fail(MPT_BAD_FILE, "'%s' has no tensor '%s', which model '%s' needs", weights, t.name, m.name);
    if (status)
      return status;
    // The generator's state is the seed, then its counters.
    if (t.role == MPT_ROLE_RNG && setSeed && t.bytes >= 4) {
      memset(host + t.offset, 0, static_cast<size_t>(t.bytes));
      memcpy(host + t.offset, &seed, static_cast<size_t>(std::min<int64_t>(sizeOf(t.dtype), 8)));
    }
  }
  trainer.checksumOfShards = filling.checksumOfShards();
  if (!copy)
    return MPT_OK;
  Transfer whole{trainer.state.data(), host, trainer.state.bytes()};
  return trainer.device->upload(&whole, 1);
}

extern "C" {

mpt_status mpt_trainer_save(const mpt_trainer *trainer, const char *path) {
  if (!trainer || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a path, got NULL");
  return guarded([&] {
    if (!trainer->replicas)
      return save(*trainer, path);
    const bool takesPart = trainer->replicas->isFirst() || trainer->shards.any();
    return trainer->replicas->followFirst(takesPart ? save(*trainer, path) : MPT_OK);
  });
}

mpt_status mpt_trainer_save_sharded(const mpt_trainer *trainer, const char *path) {
  if (!trainer || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a path, got NULL");
  if (!trainer->shards.any())
    return mpt_trainer_save(trainer, path);
  return guarded([&] { return saveShards(*trainer, path); });
}

mpt_status mpt_trainer_load(mpt_trainer *trainer, const char *path) {
  if (!trainer || !path)
    return fail(MPT_INVALID_ARGUMENT, "expected a trainer and a path, got NULL");
  return guarded([&] {
    mpt_status status = load(*trainer, path);
    return trainer->replicas ? trainer->replicas->compareStates(*trainer, status) : status;
  });
}

} // extern "C"
