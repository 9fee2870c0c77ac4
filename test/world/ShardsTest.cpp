// SPDX-License-Identifier: Apache-2.0
// States that replicas divide: every local shard is looked at for values that are not finite, and cut and joined alike.
#include "core/Shards.h"
#include "core/Device.h"
#include "core/Finite.h"
#include "core/Json.h"

#include "Check.h"

#include <cmath>
#include <cstring>

using namespace mpt::rt;

namespace {

constexpr int64_t replicas = 3, ofShard = 16, elements = 40; // of the whole tensor; the last shard has 8 of them

class HostDevice : public Device {
public:
  bool sharesHostMemory() const override { return true; }
  std::unique_ptr<Memory> allocate(int64_t) override { return nullptr; }
  mpt_status upload(const Transfer *, size_t) override { return MPT_OK; }
  mpt_status download(const Transfer *, size_t) override { return MPT_OK; }
  mpt_status locate(const void *, bool &onHost) override {
    onHost = true;
    return MPT_OK;
  }
  mpt_status stage(const mpt_function_desc &, FunctionState &) override { return MPT_OK; }
  mpt_status run(const mpt_function_desc &, FunctionState &, mpt_exec &) override { return MPT_OK; }
  mpt_status synchronize() override { return MPT_OK; }
  int64_t stagingBytes() const override { return 0; }
};

/// One process with all replicas, whose state is a parameter of 16 elements and a divided master.
struct Model {
  const int64_t whole[1] = {ofShard};
  const mpt_tensor_desc state[2] = {
      {"w", "", whole, 1, MPT_FLOAT32, MPT_ROLE_PARAMETER, 4 * ofShard, 0},
      {"w.master", "w", whole, 1, MPT_FLOAT32, MPT_ROLE_MASTER, 4 * ofShard, 4 * ofShard}};
  mpt_module_desc module{};
  mpt_function_desc step{};
  Shards shards;
  std::vector<float> block;
  Model() {
    module.name = "model";
    module.manifest = R"({"replicas": {"count": 3, "split": []},
                          "shards": {"bytes": 64, "states": {"w.master": {"shape": [40]}}}})";
    module.state_bytes = 8 * ofShard;
    module.num_state = 2;
    module.state = state;
    step.name = "step";
    Json manifest;
    std::string error;
    EXPECT(parseJson(module.manifest, manifest, error));
    EXPECT(shards.read(module, manifest, nullptr) == MPT_OK);
    block.assign(static_cast<size_t>(shards.blockBytes()) / 4, 1);
  }
  uint8_t *data() { return reinterpret_cast<uint8_t *>(block.data()); }
};

void nonfiniteInAnyShard() {
  HostDevice device;
  for (int64_t bad = -1; bad < elements; ++bad) {
    Model model;
    std::vector<float> whole(elements, 1);
    if (bad >= 0)
      whole[static_cast<size_t>(bad)] = bad % 2 ? NAN : INFINITY;
    model.shards.cut(1, reinterpret_cast<uint8_t *>(whole.data()), model.data());
    FiniteCheck check(device);
    const mpt_status status = check.begin(model.step, {}, model.module, model.shards, model.data());
    EXPECT(status == (bad < 0 ? MPT_OK : MPT_NOT_FINITE));
    const char *text = bad % 2 ? "'w.master' holds 0 infinities and 1 NaN in 48 values"
                               : "'w.master' holds 1 infinities and 0 NaN in 48 values";
    EXPECT(bad < 0 || strstr(mpt_last_error(), text));
  }
}

void cutAndJoined() {
  Model model;
  std::vector<float> whole(elements), back(static_cast<size_t>(model.shards.paddedBytes(1)) / 4, -1);
  for (size_t i = 0; i < whole.size(); ++i)
    whole[i] = static_cast<float>(i + 1);
  model.shards.cut(1, reinterpret_cast<uint8_t *>(whole.data()), model.data());
  model.shards.join(1, model.data(), reinterpret_cast<uint8_t *>(back.data()));
  EXPECT(back.size() == replicas * ofShard);
  for (size_t i = 0; i < back.size(); ++i)
    EXPECT(back[i] == (i < elements ? static_cast<float>(i + 1) : 0.0f));
}

} // namespace

int main() {
  nonfiniteInAnyShard();
  cutAndJoined();
  return mpt::test::finish("world-shards");
}
