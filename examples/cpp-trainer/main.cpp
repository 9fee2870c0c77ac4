// SPDX-License-Identifier: Apache-2.0
// Trains whatever model it is linked with:
//   cpp-trainer STEPS NAME=FILE...
// A file holds the raw bytes of one or more batches of the input NAME, back to back, which are used in turn. Inputs
// that are not named get random numbers (floating point) or zeros (integers). Prints losses, saves the trained state.
//
// Of a model compiled with --replicas=V, a batch has the rows of all V replicas. Then
//   mpirun -n 2 cpp-trainer STEPS NAME=FILE...
// trains on two processes, each of which passes its part of the rows, and ends in the same bits.
#include "mpt-c/world.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

extern "C" const mpt_module_desc mpt_module; // the compiled model

namespace {

void require(mpt_status status) {
  if (status == MPT_OK)
    return;
  fprintf(stderr, "cpp-trainer: %s\n", mpt_last_error());
  exit(1);
}

size_t bytesOf(const mpt_tensor &t) {
  size_t bytes = t.dtype == MPT_FLOAT32 || t.dtype == MPT_INT32                            ? 4
                 : t.dtype == MPT_FLOAT16 || t.dtype == MPT_BFLOAT16                       ? 2
                 : t.dtype == MPT_FLOAT64 || t.dtype == MPT_INT64 || t.dtype == MPT_UINT64 ? 8
                                                                                           : 1;
  for (int i = 0; i < t.rank; ++i)
    bytes *= static_cast<size_t>(t.shape[i]);
  return bytes;
}

/// The batches of one input.
std::vector<char> dataFor(const mpt_tensor &input, const std::map<std::string, std::string> &files) {
  size_t bytes = bytesOf(input);
  std::vector<char> data(bytes);
  if (auto file = files.find(input.name); file != files.end()) {
    std::ifstream in(file->second, std::ios::binary);
    data.assign(std::istreambuf_iterator<char>(in), {});
    if (data.empty() || data.size() % bytes) {
      fprintf(stderr, "cpp-trainer: %s: expected a multiple of %zu bytes, got %zu\n", file->second.c_str(), bytes,
              data.size());
      exit(1);
    }
  } else if (input.dtype == MPT_FLOAT32) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < bytes / 4; ++i)
      reinterpret_cast<float *>(data.data())[i] = normal(random);
  }
  return data;
}

} // namespace

int main(int argc, char **argv) {
  int steps = argc > 1 ? atoi(argv[1]) : 100;
  std::map<std::string, std::string> files;
  for (int i = 2; i < argc; ++i) {
    std::string text = argv[i];
    files[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }

  mpt_world *world = nullptr; // of the processes that were started together; this one alone without a launcher
  mpt_model *model = nullptr;
  mpt_trainer *trainer = nullptr;
  require(mpt_world_init(nullptr, &world));
  const auto rank = static_cast<size_t>(mpt_world_rank(world)), ranks = static_cast<size_t>(mpt_world_size(world));
  require(mpt_model_from_desc(&mpt_module, MODEL_DIR, &model));
  mpt_trainer_options options = {};
  options.world = world;
  require(mpt_trainer_create(model, &options, &trainer));

  std::vector<mpt_tensor> inputs;
  std::vector<std::vector<char>> data;
  std::vector<std::vector<int64_t>> shapes;
  mpt_tensor input;
  for (int64_t i = 0; mpt_model_input(model, "step", i, &input) == MPT_OK; ++i) {
    if (std::string(input.name) == "learning_rate") // keeps the value the model was compiled with
      continue;
    inputs.push_back(input);
    data.push_back(dataFor(input, files));
    shapes.emplace_back(input.shape, input.shape + input.rank);
    if (input.rank > 0)
      shapes.back()[0] /= static_cast<int64_t>(ranks);
  }

  for (int step = 0; step < steps; ++step) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      inputs[i].shape = shapes[i].data();
      size_t bytes = bytesOf(inputs[i]), whole = inputs[i].rank ? bytes * ranks : bytes;
      size_t batches = whole ? data[i].size() / whole : 1;
      inputs[i].data =
          data[i].data() + static_cast<size_t>(step) % batches * whole + (inputs[i].rank ? rank * bytes : 0);
    }
    mpt_metrics metrics;
    require(mpt_trainer_step(trainer, inputs.data(), static_cast<int64_t>(inputs.size()), &metrics));
    if (rank == 0 && (step % 10 == 0 || step + 1 == steps))
      printf("step %d loss %.6f%s\n", step, metrics.loss, metrics.skipped ? " (skipped: gradient not finite)" : "");
  }

  std::string path = std::string(mpt_model_name(model)) + ".trained.safetensors";
  require(mpt_trainer_save(trainer, path.c_str())); // all call it, one rank writes
  if (rank == 0)
    printf("saved %s\n", path.c_str());
  mpt_trainer_destroy(trainer);
  mpt_model_destroy(model);
  mpt_world_destroy(world);
}
