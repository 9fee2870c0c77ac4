// SPDX-License-Identifier: Apache-2.0
// Trains whatever model it is linked with:
//   cpp-trainer STEPS NAME=FILE...
// A file holds the raw bytes of one or more batches of the input NAME, back to back, which are used in turn. Inputs
// that are not named get random numbers (floating point) or zeros (integers). Prints losses, saves the trained state.
//
// Of a model compiled with --replicas=V, a batch has the rows of all V replicas. Then
//   mpirun -n 2 cpp-trainer STEPS NAME=FILE...
// trains on two processes, each of which passes its part of the rows, with bitwise identical results.
#include "mpt-c/world.h"
#include "mpt/trainer.hpp"

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

extern "C" const mpt_module_desc mpt_module; // the compiled model

namespace {

size_t bytesOf(const mpt::Tensor &t) {
  size_t bytes = t.dtype == MPT_FLOAT32 || t.dtype == MPT_INT32                            ? 4
                 : t.dtype == MPT_FLOAT16 || t.dtype == MPT_BFLOAT16                       ? 2
                 : t.dtype == MPT_FLOAT64 || t.dtype == MPT_INT64 || t.dtype == MPT_UINT64 ? 8
                                                                                           : 1;
  return bytes * t.size();
}

/// The batches of one input.
std::vector<char> dataFor(const mpt::Tensor &input, const std::map<std::string, std::string> &files) {
  size_t bytes = bytesOf(input);
  std::vector<char> data(bytes);
  if (auto file = files.find(input.name); file != files.end()) {
    std::ifstream in(file->second, std::ios::binary);
    data.assign(std::istreambuf_iterator<char>(in), {});
    if (data.empty() || data.size() % bytes) {
      throw std::runtime_error(file->second + ": expected a multiple of " + std::to_string(bytes) + " bytes, got " +
                               std::to_string(data.size()));
    }
  } else if (input.dtype == MPT_FLOAT32) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < bytes / 4; ++i)
      reinterpret_cast<float *>(data.data())[i] = normal(random);
  }
  return data;
}

void train(int steps, const std::map<std::string, std::string> &files, mpt_world *world) {
  const auto rank = static_cast<size_t>(mpt_world_rank(world)), ranks = static_cast<size_t>(mpt_world_size(world));
  mpt::Options options;
  options.world = world;
  mpt::Trainer trainer(mpt_module, MPT_MODEL_DIRECTORY, options);

  mpt::Inputs rows; // the part that this process passes
  std::vector<std::vector<char>> data;
  for (mpt::Tensor &input : trainer.inputs()) {
    if (input.name == "learning_rate") // keeps the value the model was compiled with
      continue;
    data.push_back(dataFor(input, files));
    if (!input.shape.empty())
      input.shape[0] /= static_cast<int64_t>(ranks);
    rows.push_back(std::move(input));
  }

  for (size_t step = 0; step < static_cast<size_t>(steps); ++step) {
    mpt::Inputs inputs;
    for (size_t i = 0; i < rows.size(); ++i) {
      bool isDivided = !rows[i].shape.empty();
      size_t bytes = bytesOf(rows[i]), whole = isDivided ? bytes * ranks : bytes;
      size_t batches = whole ? data[i].size() / whole : 1;
      inputs.emplace_back(rows[i].name, rows[i].dtype,
                          data[i].data() + step % batches * whole + (isDivided ? rank * bytes : 0), rows[i].shape);
    }
    mpt_metrics metrics = trainer.step(inputs);
    if (rank == 0 && (step % 10 == 0 || step + 1 == static_cast<size_t>(steps)))
      printf("step %zu loss %.6f%s\n", step, metrics.loss, metrics.skipped ? " (skipped: gradient not finite)" : "");
  }

  std::string path = trainer.name() + ".trained.safetensors";
  trainer.save(path); // all call it, one rank writes
  if (rank == 0)
    printf("saved %s\n", path.c_str());
}

} // namespace

int main(int argc, char **argv) {
  std::map<std::string, std::string> files;
  for (int i = 2; i < argc; ++i) {
    std::string text = argv[i];
    files[text.substr(0, text.find('='))] = text.substr(text.find('=') + 1);
  }
  mpt_world *world = nullptr; // of the processes that were started together; this one alone without a launcher
  int status = 0;
  try {
    mpt::check(mpt_world_init(nullptr, &world));
    train(argc > 1 ? atoi(argv[1]) : 100, files, world);
  } catch (const std::exception &problem) {
    fprintf(stderr, "cpp-trainer: %s\n", problem.what());
    status = 1;
  }
  mpt_world_destroy(world);
  return status;
}
