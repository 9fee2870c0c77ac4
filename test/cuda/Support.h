// SPDX-License-Identifier: Apache-2.0
// Common parts of the CUDA runtime's tests: the fake driver's counters, and the hand-written model's weights.
#ifndef MPT_TEST_CUDA_SUPPORT_H
#define MPT_TEST_CUDA_SUPPORT_H

#include "Check.h"
#include "StandIn.h"

#include "mpt-c/runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

namespace mpt::test {

/// Options of trainers: a fake library in the place of driver, cuBLASLt and cuDNN.
class TrainerOptions {
public:
  TrainerOptions(std::string weights, int device = 0) // a path alone will do
      : weights(std::move(weights)), device(device) {}
  TrainerOptions &set(const std::string &key, const std::string &value) {
    values[key] = value;
    return *this;
  }
  mpt_status create(mpt_model *model, mpt_trainer **trainer) const {
    std::vector<mpt_option> list;
    for (const auto &[key, value] : values)
      list.push_back({key.c_str(), value.c_str()});
    mpt_trainer_options options{};
    options.weights = weights.c_str();
    options.device = device;
    options.options = list.data();
    options.num_options = static_cast<int64_t>(list.size());
    return mpt_trainer_create(model, &options, trainer);
  }

private:
  std::string weights;
  int device;
  std::map<std::string, std::string> values = {
      {"driver", STANDIN}, {"cublaslt", STANDIN}, {"cudnn", STANDIN}, {"cache", ""}};
};

/// The fake library itself.
struct StandInLibrary {
  void (*counts)(StandInCounts *);
  void (*reset)();
  const char *(*violations)();
  void (*device)(int, int, int64_t);
  void (*failLaunch)(int);
  void (*failAllocation)(int);
  void (*foreign)(int);

  StandInLibrary() {
    void *library = dlopen(STANDIN, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      fprintf(stderr, "%s\n", dlerror());
      exit(1);
    }
    load(library, counts, "standin_counts");
    load(library, reset, "standin_reset");
    load(library, violations, "standin_violations");
    load(library, device, "standin_device");
    load(library, failLaunch, "standin_fail_launch");
    load(library, failAllocation, "standin_fail_allocation");
    load(library, foreign, "standin_foreign");
  }
  StandInCounts now() const {
    StandInCounts result;
    counts(&result);
    return result;
  }

private:
  template <typename F> static void load(void *library, F &function, const char *name) {
    function = reinterpret_cast<F>(dlsym(library, name));
  }
};

constexpr float startW[] = {0.5f, -1, 0.25f, 2, -0.75f, 1}, startB[] = {0.125f, -0.5f};
constexpr float dataX[] = {1, 2, 3, -1, 0.5f, 2, 0, 1, -2, 3, -1, 1}, dataY[] = {1, 0, -1, 2, 0.5f, 1, 2, -2};

inline std::string writeWeights() {
  std::string path = "/tmp/linear-cuda-" + std::to_string(getpid()) + ".safetensors";
  std::string header = "{\"w\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]},"
                       "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[24,32]}}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  uint64_t length = header.size();
  if (FILE *file = fopen(path.c_str(), "wb")) {
    fwrite(&length, 8, 1, file);
    fwrite(header.data(), 1, header.size(), file);
    fwrite(startW, 1, sizeof startW, file);
    fwrite(startB, 1, sizeof startB, file);
    fclose(file);
  }
  return path;
}

inline std::vector<mpt_tensor> inputs(const float *x = dataX, const float *y = dataY) {
  static const int64_t shapeX[] = {4, 3}, shapeY[] = {4, 2};
  return {{"x", MPT_FLOAT32, 2, shapeX, const_cast<float *>(x)}, {"y", MPT_FLOAT32, 2, shapeY, const_cast<float *>(y)}};
}

} // namespace mpt::test

#endif
