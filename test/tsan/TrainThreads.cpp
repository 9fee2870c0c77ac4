// SPDX-License-Identifier: Apache-2.0
// Trains libraries in several threads at once, each trainer with several threads: train_threads LIBRARY...
#include "mpt-c/abi.h"
#include "mpt-c/runtime.h"

#include "oneapi/dnnl/dnnl.h"

#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

void check(mpt_status status) {
  if (status == MPT_OK)
    return;
  fprintf(stderr, "error %d: %s\n", status, mpt_last_error());
  exit(1);
}

/// Inputs of a function: whole numbers from 0 to 2, which are legal as indices, labels and floats.
struct Inputs {
  std::vector<mpt_tensor> tensors;
  std::vector<std::vector<char>> data;

  Inputs(const mpt_model *model, const char *function) {
    mpt_tensor t;
    for (int64_t i = 0; mpt_model_input(model, function, i, &t) == MPT_OK; ++i) {
      int64_t count = 1;
      for (int32_t d = 0; d < t.rank; ++d)
        count *= t.shape[d];
      const bool real = t.dtype == MPT_FLOAT32;
      data.emplace_back(static_cast<size_t>(count * (real ? 4 : 8)));
      for (int64_t k = 0; k < count; ++k)
        if (real)
          reinterpret_cast<float *>(data.back().data())[k] = count == 1 ? 1e-3f : static_cast<float>(k % 3);
        else
          reinterpret_cast<int64_t *>(data.back().data())[k] = k % 3;
      tensors.push_back(t);
    }
    for (size_t i = 0; i < tensors.size(); ++i)
      tensors[i].data = data[i].data();
  }
};

void train(mpt_model *model, double &loss) {
  mpt_trainer *trainer = nullptr;
  mpt_trainer_options options{};
  options.threads = 3;
  check(mpt_trainer_create(model, &options, &trainer));
  Inputs inputs(model, "step"), evaluation(model, "evaluate");
  mpt_metrics metrics{};
  double first = 0;
  for (int i = 0; i < 10; ++i) {
    check(mpt_trainer_step(trainer, inputs.tensors.data(), static_cast<int64_t>(inputs.tensors.size()), &metrics));
    first = i ? first : metrics.loss;
  }
  loss = metrics.loss;
  if (!(loss < first)) {
    fprintf(stderr, "the loss was %.9g at first, and is %.9g\n", first, loss);
    exit(1);
  }
  check(mpt_trainer_evaluate(trainer, evaluation.tensors.data(), static_cast<int64_t>(evaluation.tensors.size()),
                             nullptr));
  mpt_trainer_destroy(trainer);
}

} // namespace

int main(int argc, char **argv) {
  // oneDNN makes its cache at the first use, behind a guard that is not instrumented: before there are threads.
  int capacity = 0;
  dnnl_get_primitive_cache_capacity(&capacity);
  for (int i = 1; i < argc; ++i) {
    mpt_model *model = nullptr;
    check(mpt_model_load(argv[i], &model));
    double losses[3];
    std::vector<std::thread> trainers;
    for (double &loss : losses)
      trainers.emplace_back([&, model] { train(model, loss); });
    for (std::thread &trainer : trainers)
      trainer.join();
    bool same = losses[0] == losses[1] && losses[1] == losses[2];
    printf("%s: loss %.9g%s\n", argv[i], losses[0], same ? "" : ", and others");
    if (!same)
      return 1;
    mpt_model_destroy(model);
  }
}
