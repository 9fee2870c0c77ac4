// SPDX-License-Identifier: Apache-2.0
// Training on the fake driver: results, one graph launch a step, nothing waits, state in and out of the device.
#include "Support.h"

#include <cmath>
#include <fstream>
#include <iterator>

using namespace mpt::test;

namespace {

/// The same steps on the host.
struct Reference {
  float w[6], b[2];
  Reference() {
    memcpy(w, startW, sizeof w);
    memcpy(b, startB, sizeof b);
  }
  float step(const float *x, const float *y, float rate) {
    float delta[8], loss = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 2; ++j) {
        float p = b[j];
        for (int k = 0; k < 3; ++k)
          p += x[i * 3 + k] * w[k * 2 + j];
        loss += (p - y[i * 2 + j]) * (p - y[i * 2 + j]) / 8;
        delta[i * 2 + j] = 2 * (p - y[i * 2 + j]) / 8;
      }
    for (int j = 0; j < 2; ++j)
      for (int i = 0; i < 4; ++i) {
        b[j] -= rate * delta[i * 2 + j];
        for (int k = 0; k < 3; ++k)
          w[k * 2 + j] -= rate * x[i * 3 + k] * delta[i * 2 + j];
      }
    return loss;
  }
};

bool near(double a, double b) { return std::abs(a - b) <= 1e-5 * (1 + std::abs(b)); }

mpt_trainer *make(const TrainerOptions &options, const char *file = LINEAR_DIR "/liblinear-cuda.so") {
  mpt_model *model = nullptr;
  mpt_trainer *trainer = nullptr;
  if (!EXPECT(mpt_model_load(file, &model) == MPT_OK) || !EXPECT(options.create(model, &trainer) == MPT_OK)) {
    fprintf(stderr, "%s\n", mpt_last_error());
    exit(1);
  }
  EXPECT(strcmp(mpt_model_target(model), "cuda") == 0);
  mpt_model_destroy(model);
  return trainer;
}

void results(const std::string &weights) {
  mpt_trainer *trainer = make(weights);
  Reference reference;
  float x[12], y[8];
  for (int step = 0; step < 6; ++step) {
    // The caller's memory changes at once after each call.
    for (int i = 0; i < 12; ++i)
      x[i] = dataX[i] + static_cast<float>(step) * 0.25f;
    memcpy(y, dataY, sizeof y);
    float loss = reference.step(x, y, 0.1f);
    auto in = inputs(x, y);
    mpt_metrics metrics;
    EXPECT(mpt_trainer_step(trainer, in.data(), 2, step % 2 ? &metrics : nullptr) == MPT_OK);
    memset(x, 0x7f, sizeof x);
    memset(y, 0x7f, sizeof y);
    EXPECT(mpt_trainer_metrics(trainer, "step", &metrics) == MPT_OK);
    EXPECT(near(metrics.loss, static_cast<double>(loss)));
  }
  float w[6], b[2];
  EXPECT(mpt_trainer_get(trainer, "w", w, 6) == MPT_OK && mpt_trainer_get(trainer, "b", b, 2) == MPT_OK);
  for (int i = 0; i < 6; ++i)
    EXPECT(near(static_cast<double>(w[i]), static_cast<double>(reference.w[i])));
  EXPECT(near(static_cast<double>(b[1]), static_cast<double>(reference.b[1])));
  int64_t count = 0;
  EXPECT(mpt_trainer_read(trainer, 2, &count, 8) == MPT_OK && count == 6);
  auto in = inputs();
  EXPECT(mpt_trainer_evaluate(trainer, in.data(), 1, nullptr) == MPT_OK);
  mpt_tensor out, onDevice;
  EXPECT(mpt_trainer_output(trainer, "evaluate", "prediction", &out) == MPT_OK);
  double p = static_cast<double>(reference.b[0]);
  for (int k = 0; k < 3; ++k)
    p += static_cast<double>(dataX[k]) * static_cast<double>(reference.w[k * 2]);
  EXPECT(near(static_cast<double>(static_cast<float *>(out.data)[0]), p));
  EXPECT(mpt_trainer_device_output(trainer, "evaluate", 0, &onDevice) == MPT_OK && onDevice.data != out.data);
  mpt_trainer_destroy(trainer);
}

/// Steps that go on without waiting for the device give the same results as the others.
void pipelined(const std::string &weights, const StandInLibrary &standin) {
  mpt_trainer *trainer = make(weights);
  Reference reference;
  float x[12], loss = 0;
  auto in = inputs(x, dataY);
  auto step = [&](int i) {
    for (int k = 0; k < 12; ++k)
      x[k] = dataX[k] * (1 + 0.125f * static_cast<float>(i % 3));
    loss = reference.step(x, dataY, 0.1f);
    EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
    memset(x, 0x7f, sizeof x);
  };
  for (int i = 0; i < 2; ++i) // the first chooses, the second records
    step(i);
  StandInCounts before = standin.now();
  constexpr int steps = 10;
  for (int i = 0; i < steps; ++i)
    step(i);
  StandInCounts after = standin.now();
  EXPECT(after.synchronizations == before.synchronizations);
  EXPECT(after.allocations == before.allocations && after.captures == before.captures);
  EXPECT(after.graphLaunches - before.graphLaunches == steps);
  // Beside the graph: the inputs (two, and the learning rate, in one piece) to the device and into place.
  EXPECT(after.enqueued - before.enqueued == 2 * steps);
  mpt_metrics metrics;
  EXPECT(mpt_trainer_metrics(trainer, "step", &metrics) == MPT_OK);
  EXPECT(near(metrics.loss, static_cast<double>(loss)));
  mpt_trainer_destroy(trainer);
}

void states(const std::string &weights, const StandInLibrary &standin) {
  mpt_trainer *a = make(weights), *b = make(weights);
  std::string path = weights + ".state";
  auto in = inputs();
  mpt_metrics ofA, ofB;
  for (int i = 0; i < 3; ++i)
    mpt_trainer_step(a, in.data(), 2, &ofA);
  EXPECT(mpt_trainer_save(a, path.c_str()) == MPT_OK);
  EXPECT(mpt_trainer_load(b, path.c_str()) == MPT_OK);
  EXPECT(mpt_trainer_step(a, in.data(), 2, &ofA) == MPT_OK && mpt_trainer_step(b, in.data(), 2, &ofB) == MPT_OK);
  EXPECT(ofA.loss == ofB.loss);
  // Parameters and inputs of one trainer lie on the device, where another one reads them.
  mpt_tensor parameter;
  EXPECT(mpt_trainer_parameter(a, 0, &parameter) == MPT_OK);
  const int64_t shape[] = {4, 2};
  mpt_trainer_evaluate(a, in.data(), 1, nullptr);
  mpt_tensor prediction, *given = &in[1];
  EXPECT(mpt_trainer_device_output(a, "evaluate", 0, &prediction) == MPT_OK);
  *given = {"y", MPT_FLOAT32, 2, shape, prediction.data};
  mpt_trainer_synchronize(a);
  EXPECT(mpt_trainer_set(b, "b", startB, 2) == MPT_OK && mpt_trainer_set(a, "b", startB, 2) == MPT_OK);
  EXPECT(mpt_trainer_step(b, in.data(), 2, &ofB) == MPT_OK && std::isfinite(ofB.loss));
  mpt_memory memory;
  EXPECT(mpt_trainer_memory(b, &memory) == MPT_OK && memory.state_bytes == 192 && memory.arena_bytes == 512);
  int64_t live = standin.now().liveBytes;
  mpt_trainer_destroy(a);
  mpt_trainer_destroy(b);
  EXPECT(live > 0 && standin.now().liveBytes == 0);
  unlink(path.c_str());
}

/// A GEMM keeps where its ReLU passed, and another one is masked by that and summed.
void masked(const std::string &weights) {
  mpt_trainer *trainer = make(weights, LINEAR_DIR "/liblinear-cuda-relu.so");
  auto in = inputs();
  for (int run = 0; run < 3; ++run) // call by call, as a graph is recorded, and from the graph
    EXPECT(mpt_trainer_evaluate(trainer, in.data(), 1, nullptr) == MPT_OK);
  const float *found[3];
  const char *names[] = {"prediction", "masked", "sums"};
  for (int i = 0; i < 3; ++i) {
    mpt_tensor out;
    if (!EXPECT(mpt_trainer_output(trainer, "evaluate", names[i], &out) == MPT_OK))
      return;
    found[i] = static_cast<const float *>(out.data);
  }
  float sums[2] = {};
  int passed = 0;
  for (int i = 0; i < 8; ++i) {
    float product = 0;
    for (int k = 0; k < 3; ++k)
      product += dataX[i / 2 * 3 + k] * startW[k * 2 + i % 2];
    float sum = product + startB[i % 2];
    passed += sum > 0;
    sums[i % 2] += sum > 0 ? product : 0;
    EXPECT(near(static_cast<double>(found[0][i]), sum > 0 ? static_cast<double>(sum) : 0));
    EXPECT(near(static_cast<double>(found[1][i]), sum > 0 ? static_cast<double>(product) : 0));
  }
  EXPECT(passed > 0 && passed < 8);
  for (int i = 0; i < 2; ++i)
    EXPECT(near(static_cast<double>(found[2][i]), static_cast<double>(sums[i])));
  mpt_trainer_destroy(trainer);
}

/// GEMMs of a trainer's first step, in which algorithms are tried.
int64_t gemmsOfFirstStep(const TrainerOptions &options, const StandInLibrary &standin) {
  mpt_trainer *trainer = make(options);
  auto in = inputs();
  int64_t before = standin.now().gemms;
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  mpt_trainer_synchronize(trainer);
  int64_t after = standin.now().gemms;
  mpt_trainer_destroy(trainer);
  return after - before;
}

std::string readText(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
void writeText(const std::string &path, const std::string &text) { std::ofstream(path) << text; }

/// Algorithms that were found stay in a file; one that is of no use any more is looked for again.
void cached(const std::string &weights, const StandInLibrary &standin) {
  std::string path = weights + ".folder/algorithms";
  TrainerOptions options = TrainerOptions(weights).set("cache", path);
  int64_t searched = gemmsOfFirstStep(options, standin), known = gemmsOfFirstStep(options, standin);
  EXPECT(known > 0 && searched > 2 * known);
  FILE *file = fopen(path.c_str(), "r+");
  if (EXPECT(file != nullptr)) {
    fputs("stand-in", file);
    fseek(file, 0, SEEK_END);
    fputs("no line of ours\nneither\tthis\n", file);
    fclose(file);
  }
  EXPECT(gemmsOfFirstStep(options, standin) == known);
  // Choices found with less effort are not enough for more.
  options.set("search", "full");
  EXPECT(gemmsOfFirstStep(options, standin) == searched);
  options.set("search", "quick");
  EXPECT(gemmsOfFirstStep(options, standin) == known);
  setenv("MPT_STANDIN_REFUSE", "0", 1); // the algorithm that was chosen
  EXPECT(gemmsOfFirstStep(options, standin) > known);
  unsetenv("MPT_STANDIN_REFUSE");
  options.set("search", "off");
  unlink(path.c_str());
  EXPECT(gemmsOfFirstStep(options, standin) == known);
  unlink(path.c_str());
  rmdir((weights + ".folder").c_str());
}

/// GEMMs of FP32 use TF32 where the option says so (the fake cuBLASLt checks), and not another's choice.
void tf32(const std::string &weights, const StandInLibrary &standin) {
  const std::string path = weights + ".choices";
  const int64_t searched = gemmsOfFirstStep(TrainerOptions(weights).set("cache", path), standin);
  setenv("MPT_STANDIN_TF32", "1", 1);
  EXPECT(gemmsOfFirstStep(TrainerOptions(weights).set("cache", path).set("tf32", "1"), standin) == searched);
  unsetenv("MPT_STANDIN_TF32");
  unlink(path.c_str());
}

/// The losses of `steps` more steps, and the parameters behind them, as text.
std::string train(mpt_trainer *trainer, int steps) {
  std::string text;
  auto in = inputs();
  for (int i = 0; i < steps; ++i) {
    mpt_metrics metrics;
    EXPECT(mpt_trainer_step(trainer, in.data(), 2, &metrics) == MPT_OK);
    text += std::to_string(metrics.loss) + " ";
  }
  float w[6] = {};
  EXPECT(mpt_trainer_get(trainer, "w", w, 6) == MPT_OK);
  return text.append(reinterpret_cast<const char *>(w), sizeof w);
}

/// A run that is taken up again goes on with the algorithms that it began with, whatever is faster by then.
void resumed(const std::string &weights, const StandInLibrary &standin) {
  const std::string path = weights + ".resumed";
  auto begin = [&](const char *fastest) {
    setenv("MPT_STANDIN_FASTEST_ALGORITHM", fastest, 1);
    return make(weights);
  };
  mpt_trainer *whole = begin("1");
  train(whole, 3);
  EXPECT(mpt_trainer_save(whole, path.c_str()) == MPT_OK);
  const std::string wanted = train(whole, 40);
  mpt_trainer_destroy(whole);
  // Into a new trainer, and into one that has chosen otherwise.
  for (bool used : {false, true}) {
    mpt_trainer *rest = begin("0");
    if (used)
      EXPECT(train(rest, 43).substr(60) != wanted.substr(60)); // or this test shows nothing
    EXPECT(mpt_trainer_load(rest, path.c_str()) == MPT_OK);
    int64_t before = standin.now().gemms;
    auto in = inputs();
    mpt_trainer_evaluate(rest, in.data(), 1, nullptr);
    EXPECT(train(rest, 40) == wanted);
    EXPECT(standin.now().gemms - before < 3 * 44); // nothing was searched
    mpt_trainer_destroy(rest);
  }
  // Of another version of a library nothing is taken over.
  std::string text = readText(path);
  for (size_t at = text.find("cuBLASLt 130100"); at != std::string::npos; at = text.find("cuBLASLt 130100"))
    text.replace(at, 15, "cuBLASLt 130099");
  writeText(path, text);
  mpt_trainer *rest = begin("0");
  EXPECT(mpt_trainer_load(rest, path.c_str()) == MPT_OK);
  EXPECT(train(rest, 40).substr(60) != wanted.substr(60));
  mpt_trainer_destroy(rest);
  unsetenv("MPT_STANDIN_FASTEST_ALGORITHM");
  unlink(path.c_str());
}

} // namespace

int main() {
  StandInLibrary standin;
  std::string weights = writeWeights();
  results(weights);
  pipelined(weights, standin);
  states(weights, standin);
  cached(weights, standin);
  resumed(weights, standin);
  tf32(weights, standin);
  masked(weights);
  EXPECT(standin.now().violations == 0);
  fputs(standin.violations(), stderr);
  unlink(weights.c_str());
  return finish("cuda-trainer");
}
