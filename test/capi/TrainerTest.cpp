// SPDX-License-Identifier: Apache-2.0
// The C API against a hand-written model: training, gradients, parameters, checked inputs, refused libraries.
#include "Check.h"
#include "core/Float.h"
#include "core/SafeTensors.h"
#include "mpt-c/abi.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

extern "C" const mpt_module_desc mpt_module;

namespace {

float xs[] = {1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 1, 1}, ys[] = {1, 2, 3, 4, 5, 6, 10, 13};
float w0[] = {0.1f, 0.2f, 0.3f, -0.4f, 0.5f, 0.6f}, b0[] = {0, 0.25f}, scale0 = 1024;
const int64_t shapeX[] = {4, 3}, shapeY[] = {4, 2};

std::vector<mpt_tensor> batch() { return {{"x", MPT_FLOAT32, 2, shapeX, xs}, {"y", MPT_FLOAT32, 2, shapeY, ys}}; }

/// A directory with the initial weights in FP32: the narrow copy of w is the runtime's to make.
std::string weights() {
  static std::string path;
  if (path.empty()) {
    char name[] = "/tmp/mpt-trainer-XXXXXX";
    path = std::string(mkdtemp(name)) + "/linear.safetensors";
    EXPECT(mpt::rt::writeSafeTensors(path.c_str(),
                                     {{"w", MPT_FLOAT32, {3, 2}, w0, 24},
                                      {"b", MPT_FLOAT32, {2}, b0, 8},
                                      {"scale", MPT_FLOAT32, {}, &scale0, 4}},
                                     {}) == MPT_OK);
  }
  return path;
}

mpt_trainer *newTrainer(int threads = 1) {
  mpt_model *model = nullptr;
  EXPECT(mpt_model_from_desc(&mpt_module, nullptr, &model) == MPT_OK);
  mpt_trainer_options options{};
  std::string path = weights();
  options.threads = threads;
  options.weights = path.c_str();
  options.set_seed = 1;
  options.seed = 7;
  mpt_trainer *trainer = nullptr;
  if (!EXPECT(mpt_trainer_create(model, &options, &trainer) == MPT_OK))
    fprintf(stderr, "  %s\n", mpt_last_error());
  mpt_model_destroy(model); // the trainer keeps the parts it needs
  return trainer;
}

bool says(mpt_status status, mpt_status want, const char *text) {
  bool ok = status == want && strstr(mpt_last_error(), text);
  if (!ok)
    fprintf(stderr, "  status %d, '%s'; expected %d, '%s'\n", status, mpt_last_error(), want, text);
  return ok;
}

void testTraining() {
  mpt_trainer *t = newTrainer();
  auto inputs = batch();
  mpt_metrics m{};
  float values[6];
  EXPECT(mpt_trainer_get(t, "w", values, 6) == MPT_OK && memcmp(values, w0, sizeof values) == 0);
  mpt_tensor p{};
  EXPECT(mpt_trainer_parameter(t, 0, &p) == MPT_OK && std::string(p.name) == "w" && p.dtype == MPT_FLOAT16);
  EXPECT(static_cast<uint16_t *>(p.data)[1] == mpt::rt::toF16(0.2f));
  EXPECT(mpt_trainer_parameter(t, 1, &p) == MPT_OK && std::string(p.name) == "b");
  EXPECT(mpt_trainer_parameter(t, 2, &p) == MPT_NOT_FOUND);
  double first = 0;
  for (int i = 0; i < 300; ++i) {
    EXPECT(mpt_trainer_step(t, inputs.data(), 2, &m) == MPT_OK && !m.skipped && m.loss_scale == 1024);
    first = i ? first : m.loss;
  }
  EXPECT(first > 10 && m.loss < 1e-2 * first && std::isfinite(m.grad_norm));
  // The finished model predicts; metrics that evaluate does not compute are NaN.
  EXPECT(mpt_trainer_evaluate(t, inputs.data(), 1, &m) == MPT_OK && std::isnan(m.loss) && m.loss_scale == 1);
  mpt_tensor prediction{};
  EXPECT(mpt_trainer_output(t, "evaluate", "prediction", &prediction) == MPT_OK);
  for (int i = 0; i < 8; ++i)
    EXPECT(std::fabs(static_cast<float *>(prediction.data)[i] - ys[i]) < 1);
  mpt_memory memory{};
  EXPECT(mpt_trainer_memory(t, &memory) == MPT_OK && memory.state_bytes == 512 && memory.arena_bytes == 128);
  mpt_trainer_destroy(t);
}

void testGradients() {
  mpt_trainer *t = newTrainer();
  auto inputs = batch();
  mpt_metrics m{};
  EXPECT(mpt_trainer_gradients(t, inputs.data(), 2, &m) == MPT_OK);
  mpt_tensor g{};
  EXPECT(mpt_trainer_output(t, "gradients", "w", &g) == MPT_OK && g.dtype == MPT_FLOAT32 && g.rank == 2);
  std::vector<float> gradient(static_cast<float *>(g.data), static_cast<float *>(g.data) + 6);
  for (int i = 0; i < 6; ++i) { // against central differences with steps that FP16 holds exactly
    double loss[2];
    for (int side = 0; side < 2; ++side) {
      float moved[6];
      memcpy(moved, w0, sizeof moved);
      moved[i] = mpt::rt::fromF16(mpt::rt::toF16(w0[i])) + (side ? 0.125f : -0.125f);
      EXPECT(mpt_trainer_set(t, "w", moved, 6) == MPT_OK);
      EXPECT(mpt_trainer_gradients(t, inputs.data(), 2, &m) == MPT_OK);
      loss[side] = m.loss;
    }
    EXPECT(std::fabs((loss[1] - loss[0]) / 0.25 - static_cast<double>(gradient[static_cast<size_t>(i)])) < 0.01);
  }
  EXPECT(mpt_trainer_output_at(t, "gradients", 2, &g) == MPT_OK && std::string(g.name) == "b");
  EXPECT(says(mpt_trainer_output(t, "gradients", "v", &g), MPT_NOT_FOUND, "no output 'v'"));
  EXPECT(says(mpt_trainer_output(t, "step", "loss", &g), MPT_INVALID_ARGUMENT, "has not run"));
  mpt_trainer_destroy(t);
}

void testSkip() {
  mpt_trainer *t = newTrainer();
  auto inputs = batch();
  mpt_metrics m{};
  EXPECT(mpt_trainer_step(t, inputs.data(), 2, &m) == MPT_OK);
  std::vector<std::vector<uint8_t>> before;
  mpt_tensor s{};
  mpt_role role{};
  const size_t bytes[] = {12, 24, 24, 8, 8, 4, 8, 16};
  for (int64_t i = 0; mpt_trainer_state(t, i, &s, &role) == MPT_OK; ++i)
    before.emplace_back(static_cast<uint8_t *>(s.data), static_cast<uint8_t *>(s.data) + bytes[i]);
  float bad[12];
  memcpy(bad, xs, sizeof bad);
  bad[5] = INFINITY;
  inputs[0].data = bad;
  EXPECT(mpt_trainer_step(t, inputs.data(), 2, &m) == MPT_OK && m.skipped && m.loss_scale == 1024);
  for (int64_t i = 0; mpt_trainer_state(t, i, &s, &role) == MPT_OK; ++i)
    if (role != MPT_ROLE_SCALE)
      EXPECT(memcmp(s.data, before[static_cast<size_t>(i)].data(), bytes[i]) == 0);
  inputs[0].data = xs;
  EXPECT(mpt_trainer_step(t, inputs.data(), 2, &m) == MPT_OK && !m.skipped && m.loss_scale == 512);
  mpt_trainer_destroy(t);
}

void testInputs() {
  mpt_trainer *t = newTrainer();
  auto inputs = batch();
  mpt_metrics m{};
  const int64_t wrong[] = {3, 4};
  inputs[0].shape = wrong;
  EXPECT(
      says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT, "expected float32[4,3], got float32[3,4]"));
  inputs = batch();
  inputs[1].dtype = MPT_FLOAT64;
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT, "got float64[4,2]"));
  inputs = batch();
  inputs[1].rank = 1;
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT, "got float32[4]"));
  inputs = batch();
  inputs[1].name = "z";
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT,
              "no input 'z' (it has: x, y, learning_rate)"));
  inputs = batch();
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 1, &m), MPT_INVALID_ARGUMENT, "'y' of 'step' is missing"));
  inputs[1] = inputs[0];
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT, "given twice"));
  inputs = batch();
  inputs[0].data = nullptr;
  EXPECT(says(mpt_trainer_step(t, inputs.data(), 2, &m), MPT_INVALID_ARGUMENT, "got NULL"));
  EXPECT(says(mpt_trainer_run(t, "train", inputs.data(), 2, &m), MPT_NOT_FOUND, "step, gradients, evaluate"));
  EXPECT(mpt_trainer_step(nullptr, inputs.data(), 2, &m) == MPT_INVALID_ARGUMENT);
  EXPECT(says(mpt_trainer_set(t, "w", w0, 5), MPT_INVALID_ARGUMENT, "expected 6 values for float16[3,2], got 5"));
  EXPECT(says(mpt_trainer_get(t, "u", w0, 5), MPT_NOT_FOUND, "'u'"));
  EXPECT(says(mpt_trainer_set_learning_rate(t, NAN), MPT_INVALID_ARGUMENT, "finite learning rate, got nan"));
  EXPECT(says(mpt_trainer_step(t, nullptr, 2, &m), MPT_INVALID_ARGUMENT, "got NULL"));
  EXPECT(mpt_trainer_step(t, inputs.data(), -1, &m) == MPT_INVALID_ARGUMENT);
  for (float bad : {NAN, INFINITY}) { // nothing is computed, so nothing has moved below
    inputs = batch();
    inputs.push_back({"learning_rate", MPT_FLOAT32, 0, nullptr, &bad});
    EXPECT(says(mpt_trainer_step(t, inputs.data(), 3, &m), MPT_INVALID_ARGUMENT, "expected a finite number"));
  }

  // An explicit rate of zero moves nothing; the default and an unaligned input give the same as aligned ones.
  float rate = 0, before[6], after[6];
  inputs = batch();
  inputs.push_back({"learning_rate", MPT_FLOAT32, 0, nullptr, &rate});
  EXPECT(mpt_trainer_step(t, inputs.data(), 3, &m) == MPT_OK);
  EXPECT(mpt_trainer_get(t, "w", before, 6) == MPT_OK && memcmp(before, w0, sizeof before) == 0);
  double inForce = 1;
  EXPECT(mpt_trainer_set_learning_rate(t, 0) == MPT_OK && mpt_trainer_learning_rate(t, &inForce) == MPT_OK &&
         inForce == 0);
  EXPECT(mpt_trainer_step(t, inputs.data(), 2, &m) == MPT_OK);
  EXPECT(mpt_trainer_get(t, "w", after, 6) == MPT_OK && memcmp(after, w0, sizeof after) == 0);
  alignas(64) char room[200];
  for (int offset : {0, 4, 36}) {
    memcpy(room + offset, xs, sizeof xs);
    inputs = batch();
    inputs[0].data = room + offset;
    mpt_metrics again{};
    EXPECT(mpt_trainer_gradients(t, inputs.data(), 2, &again) == MPT_OK && again.loss == m.loss);
  }
  mpt_trainer_destroy(t);
}

void testModels() {
  mpt_model *model = nullptr;
  EXPECT(mpt_model_load(LINEAR_DIR "/liblinear.so", &model) == MPT_OK &&
         std::string(mpt_model_name(model)) == "linear");
  mpt_tensor input{};
  EXPECT(mpt_model_input(model, "step", 0, &input) == MPT_OK && std::string(input.name) == "x" && input.rank == 2);
  EXPECT(mpt_model_output(model, "evaluate", 1, &input) == MPT_NOT_FOUND);
  mpt_trainer *t = nullptr;
  mpt_trainer_options options{};
  options.weights = "/nowhere/linear.safetensors";
  EXPECT(says(mpt_trainer_create(model, &options, &t), MPT_NOT_FOUND, "/nowhere/linear.safetensors"));
  for (int32_t threads : {-1, 1 << 30}) {
    options.threads = threads;
    EXPECT(says(mpt_trainer_create(model, &options, &t), MPT_INVALID_ARGUMENT, "threads, got") && !t);
  }
  mpt_model_destroy(model);
  EXPECT(says(mpt_model_load(LINEAR_DIR "/none.so", &model), MPT_NOT_FOUND, "none.so") && !model);
  EXPECT(says(mpt_model_load(LINEAR_DIR, &model), MPT_NOT_FOUND, "expected one lib*.so"));
  EXPECT(says(mpt_model_load(LINEAR_DIR "/liblinear-abi.so", &model), MPT_INCOMPATIBLE,
              ("expected ABI version " + std::to_string(MPT_ABI_VERSION) + ", got 99").c_str()));
  EXPECT(says(mpt_model_load(LINEAR_DIR "/liblinear-cpu.so", &model), MPT_INCOMPATIBLE, "lacks 'avx99'"));
  EXPECT(says(mpt_model_load("/proc/self/exe", &model), MPT_BAD_FILE, "cannot load"));
  EXPECT(mpt_model_load(nullptr, &model) == MPT_INVALID_ARGUMENT);
  mpt_model_destroy(nullptr);
  mpt_trainer_destroy(nullptr);
}

/// A library that stays loaded keeps the name that the loader knows it by, and others must not be taken for it.
void testNumbersInUse() {
  std::vector<void *> held;
  for (int i = 0; i < 3; ++i) {
    int fd = open(LINEAR_DIR "/liblinear-abi.so", O_RDONLY);
    held.push_back(dlopen(("/proc/self/fd/" + std::to_string(fd)).c_str(), RTLD_NOW | RTLD_LOCAL));
    EXPECT(held.back());
    close(fd); // the next file gets the same number
  }
  mpt_model *model = nullptr;
  EXPECT(mpt_model_load(LINEAR_DIR "/liblinear.so", &model) == MPT_OK);
  mpt_model_destroy(model);
  for (void *library : held)
    dlclose(library);
}

void testThreads() {
  // Trainers of one model on several threads compute the same as each alone, and errors stay with their thread.
  std::vector<double> losses(4);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (size_t i = 0; i < losses.size(); ++i)
    threads.emplace_back([&, i] {
      mpt_trainer *t = newTrainer(static_cast<int>(i % 2) + 1);
      auto inputs = batch();
      mpt_metrics m{};
      float value = 0;
      mpt_trainer_get(t, i % 2 ? "odd" : "even", &value, 1);
      for (int s = 0; s < 50; ++s)
        mpt_trainer_step(t, inputs.data(), 2, &m);
      wrong += !strstr(mpt_last_error(), i % 2 ? "odd" : "even");
      losses[i] = m.loss;
      mpt_trainer_destroy(t);
    });
  for (auto &thread : threads)
    thread.join();
  EXPECT(wrong == 0);
  for (double loss : losses)
    EXPECT(loss == losses[0]);
}

} // namespace

int main() {
  weights();
  testTraining();
  testGradients();
  testSkip();
  testInputs();
  testModels();
  testNumbersInUse();
  testThreads();
  unlink(weights().c_str());
  rmdir(weights().substr(0, weights().rfind('/')).c_str());
  return mpt::test::finish("trainer");
}
