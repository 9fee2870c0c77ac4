// SPDX-License-Identifier: Apache-2.0
// Errors of machines and of models, and their messages. Each case is a process of its own, since a
// process opens the driver once.
#include "Support.h"

#include <sys/wait.h>

using namespace mpt::test;

namespace {

bool says(mpt_status got, mpt_status want, std::initializer_list<const char *> parts) {
  std::string text = mpt_last_error();
  bool ok = got == want;
  for (const char *part : parts)
    ok = ok && text.find(part) != std::string::npos;
  if (!ok)
    fprintf(stderr, "status %d, text: %s\n", got, text.c_str());
  return ok;
}

mpt_status make(const char *library, const TrainerOptions &options, mpt_trainer **trainer) {
  mpt_model *model = nullptr;
  if (mpt_status status = mpt_model_load((std::string(LINEAR_DIR "/lib") + library + ".so").c_str(), &model))
    return status;
  mpt_status status = options.create(model, trainer);
  mpt_model_destroy(model);
  return status;
}

/// The text that `body` writes to standard error.
template <typename F> std::string standardError(F body) {
  char path[] = "/tmp/mpt-stderr-XXXXXX";
  int file = mkstemp(path), kept = dup(2);
  fflush(stderr);
  dup2(file, 2);
  body();
  fflush(stderr);
  dup2(kept, 2);
  std::string text(4096, '\0');
  const ssize_t length = pread(file, text.data(), text.size(), 0);
  text.resize(length < 0 ? 0 : static_cast<size_t>(length));
  for (int descriptor : {file, kept})
    close(descriptor);
  unlink(path);
  return text;
}

void noDriver(const std::string &weights) {
  TrainerOptions options = TrainerOptions(weights).set("driver", "/nowhere/libcuda.so.1");
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", options, &trainer), MPT_UNSUPPORTED, {"no CUDA driver", "/nowhere/libcuda.so.1"}));
  EXPECT(says(make("linear-cuda", options, &trainer), MPT_UNSUPPORTED, {"no CUDA driver"}));
}

void oldDriver(const std::string &weights) {
  setenv("MPT_STANDIN_DRIVER", "11080", 1);
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", weights, &trainer), MPT_INCOMPATIBLE, {"too old", "12.0", "got one for 11.8"}));
}

void noDevice(const std::string &weights) {
  setenv("MPT_STANDIN_DEVICES", "0", 1);
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", weights, &trainer), MPT_UNSUPPORTED, {"no CUDA device"}));
}

/// A file of that name that is something else; a driver that does not start.
void notTheDriver(const std::string &weights) {
  TrainerOptions options = TrainerOptions(weights).set("driver", "libm.so.6");
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", options, &trainer), MPT_UNSUPPORTED, {"not usable", "cuInit"}));
}

void notStarting(const std::string &weights) {
  setenv("MPT_STANDIN_INIT", "803", 1);
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", weights, &trainer), MPT_UNSUPPORTED, {"does not start", "CUDA_ERROR"}));
}

void notBlas(const std::string &weights) {
  TrainerOptions options = TrainerOptions(weights).set("cublaslt", "libm.so.6");
  mpt_trainer *trainer = nullptr;
  auto in = inputs();
  EXPECT(make("linear-cuda", options, &trainer) == MPT_OK);
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_UNSUPPORTED, {"/fc/Gemm", "cublasLt"}));
  mpt_trainer_destroy(trainer);
}

/// Each kind of memory that there may be too little of; the message has the free bytes, and the largest users.
void memory(const std::string &weights) {
  StandInLibrary standin;
  mpt_trainer *trainer = nullptr;
  auto in = inputs();
  standin.device(0, 13000, 100);
  EXPECT(says(make("linear-cuda", weights, &trainer), MPT_OUT_OF_MEMORY,
              {"bytes of state", "device 0 (stand-in) has 100 of 100 bytes free", "24 for 'w', 8 for 'b'"}));
  standin.device(0, 13000, 1000);
  EXPECT(make("linear-cuda", weights, &trainer) == MPT_OK);
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_OUT_OF_MEMORY, {"bytes of ", "bytes free"}));
  // The same trainer goes on once there is room.
  standin.device(0, 13000, int64_t(8) << 30);
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  mpt_trainer_destroy(trainer);
  EXPECT(standin.now().violations == 0 && standin.now().liveBytes == 0);
  fputs(standin.violations(), stderr);
}

/// Options that do not fit name the expected values, and unknown ones the known options.
void options(const std::string &weights) {
  mpt_trainer *trainer = nullptr;
  auto with = [&](const char *key, const char *value) {
    return make("linear-cuda", TrainerOptions(weights).set(key, value), &trainer);
  };
  EXPECT(says(with("convolution", "any"), MPT_INVALID_ARGUMENT,
              {"unknown option 'convolution'", "profile, skip_limit, driver, cublaslt, cudnn, libraries",
               "search, convolutions", "score-bytes"}));
  EXPECT(says(with("convolutions", "fast"), MPT_INVALID_ARGUMENT,
              {"'convolutions'", "any, cudnn, implicit, columns", "got 'fast'"}));
  EXPECT(says(with("eager", "yes"), MPT_INVALID_ARGUMENT, {"'eager'", "0, 1", "got 'yes'"}));
  EXPECT(says(with("score-bytes", "0"), MPT_INVALID_ARGUMENT, {"'score-bytes'", "1 or more, got '0'"}));
  EXPECT(with("synchronous", "1") == MPT_OK);
  mpt_trainer_destroy(trainer);
}

void noBlas(const std::string &weights) {
  TrainerOptions options = TrainerOptions(weights).set("cublaslt", "/nowhere/libcublasLt.so");
  mpt_trainer *trainer = nullptr;
  auto in = inputs();
  EXPECT(make("linear-cuda", options, &trainer) == MPT_OK);
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_UNSUPPORTED, {"/fc/Gemm", "no cuBLASLt"}));
  mpt_trainer_destroy(trainer);
}

/// A library that no option names is found in the folders that one names, and only where it lies there.
void folders(const std::string &weights) {
  char folder[] = "/tmp/mpt-libraries-XXXXXX";
  EXPECT(mkdtemp(folder) != nullptr);
  const std::string file = std::string(folder) + "/libcublasLt.so.13";
  TrainerOptions options = TrainerOptions(weights).set("cublaslt", "").set("cudnn", "none");
  auto in = inputs();
  mpt_trainer *trainer = nullptr;
  EXPECT(make("linear-cuda", options.set("libraries", std::string("/nowhere:") + folder), &trainer) == MPT_OK);
  const bool onSystem = mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK;
  mpt_trainer_destroy(trainer);
  if (onSystem) // nothing to be seen here
    return;
  EXPECT(symlink(STANDIN, file.c_str()) == 0);
  EXPECT(make("linear-cuda", options.set("libraries", std::string("/nowhere:") + folder + "/"), &trainer) == MPT_OK);
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  mpt_trainer_destroy(trainer);
  unlink(file.c_str());
  rmdir(folder);
}

void models(const std::string &weights) {
  StandInLibrary standin;
  mpt_trainer *trainer = nullptr;
  EXPECT(says(make("linear-cuda", {weights, 3}, &trainer), MPT_INVALID_ARGUMENT, {"below 1, got 3"}));
  EXPECT(says(make("linear-cuda-sm90", weights, &trainer), MPT_INCOMPATIBLE, {"no code", "stand-in", "sm_90"}));
  standin.device(90, 13000, int64_t(8) << 30);
  EXPECT(says(make("linear-cuda-sm90", weights, &trainer), MPT_INCOMPATIBLE,
              {"does not take its code", "sm_90", "CUDA_ERROR", "ptxas fatal: the stand-in has no such processor"}));
  standin.device(0, 13000, int64_t(8) << 30);
  auto in = inputs();
  EXPECT(make("linear-cuda-large", weights, &trainer) == MPT_OK);
  EXPECT(says(
      mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_OUT_OF_MEMORY,
      {"17179869184 bytes of scratch of 'step': device 0", "bytes free", "17179869056 for f32 4x2 of '/fc/Gemm'"}));
  mpt_trainer_destroy(trainer);
  EXPECT(standin.now().violations == 0);
  fputs(standin.violations(), stderr);
}

void pointers(const std::string &weights) {
  StandInLibrary standin;
  mpt_trainer *trainer = nullptr;
  EXPECT(make("linear-cuda", weights, &trainer) == MPT_OK);
  auto in = inputs();
  mpt_tensor output;
  EXPECT(mpt_trainer_evaluate(trainer, in.data(), 1, nullptr) == MPT_OK);
  EXPECT(mpt_trainer_device_output(trainer, "evaluate", 0, &output) == MPT_OK);
  in[1].data = output.data;
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  standin.foreign(1);
  EXPECT(
      says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_INVALID_ARGUMENT, {"on device 0", "one on device 1"}));
  standin.foreign(0);
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  in[1].data = static_cast<char *>(output.data) + (1 << 30);
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_INVALID_ARGUMENT, {"on device 0", "neither"}));
  mpt_trainer_destroy(trainer);
}

/// The first run names the node of a kernel that fails; later ones say how to learn it.
void kernels(const std::string &weights) {
  StandInLibrary standin;
  mpt_trainer *trainer = nullptr;
  EXPECT(make("linear-cuda", weights, &trainer) == MPT_OK);
  auto in = inputs();
  standin.failLaunch(2);
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_INTERNAL,
              {"at node '/fc/bias'", "update (sub)", "ILLEGAL_ADDRESS"}));
  standin.reset();
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  standin.failLaunch(1);
  mpt_metrics metrics;
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, &metrics), MPT_INTERNAL, {"ILLEGAL_ADDRESS", "synchronous=1"}));
  mpt_trainer_destroy(trainer);
}

/// A library that cannot be recorded costs the graph, not the training.
void uncapturable(const std::string &weights) {
  StandInLibrary standin;
  setenv("MPT_STANDIN_REFUSE_CAPTURE", "cublaslt", 1);
  mpt_trainer *trainer = nullptr;
  EXPECT(make("linear-cuda", weights, &trainer) == MPT_OK);
  auto in = inputs();
  mpt_metrics first, last;
  std::string said = standardError([&] {
    EXPECT(mpt_trainer_step(trainer, in.data(), 2, &first) == MPT_OK);
    for (int i = 0; i < 4; ++i)
      EXPECT(mpt_trainer_step(trainer, in.data(), 2, &last) == MPT_OK);
  });
  const std::string wanted = "mpt: 'step' runs call by call";
  EXPECT(said.find(wanted) != std::string::npos && said.find(wanted) == said.rfind(wanted)); // once
  EXPECT(last.loss < first.loss && standin.now().captures == 1 && standin.now().graphLaunches == 0);
  mpt_trainer_destroy(trainer);
  EXPECT(standin.now().violations == 0);
  fputs(standin.violations(), stderr);
}

/// Every allocation of a trainer's life may be the one that fails: an error then, nothing lost, and the next try works.
void allocations(const std::string &weights) {
  StandInLibrary standin;
  auto in = inputs();
  int failed = 0;
  for (int n = 1; n < 30; ++n) {
    standin.failAllocation(n);
    mpt_trainer *trainer = nullptr;
    mpt_status status = make("linear-cuda", weights, &trainer);
    for (int step = 0; !status && step < 3; ++step)
      status = mpt_trainer_step(trainer, in.data(), 2, nullptr);
    standin.failAllocation(0);
    if (status) {
      ++failed;
      EXPECT(says(status, MPT_OUT_OF_MEMORY, {"memory"}));
      EXPECT(!trainer || mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
    }
    mpt_trainer_destroy(trainer);
    EXPECT(standin.now().liveBytes == 0);
  }
  EXPECT(failed >= 4); // state, arena, scratch, inputs
  EXPECT(standin.now().violations == 0);
  fputs(standin.violations(), stderr);
}

/// After a fault nothing works any more, and every call says so.
void sticky(const std::string &weights) {
  StandInLibrary standin;
  mpt_trainer *trainer = nullptr;
  EXPECT(make("linear-cuda", weights, &trainer) == MPT_OK);
  auto in = inputs();
  for (int i = 0; i < 2; ++i)
    EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK);
  EXPECT(mpt_trainer_synchronize(trainer) == MPT_OK);
  standin.failLaunch(1);
  EXPECT(mpt_trainer_step(trainer, in.data(), 2, nullptr) == MPT_OK); // it has only been put on the stream
  float w[6];
  EXPECT(says(mpt_trainer_get(trainer, "w", w, 6), MPT_INTERNAL, {"ILLEGAL_ADDRESS", "synchronous=1"}));
  EXPECT(says(mpt_trainer_step(trainer, in.data(), 2, nullptr), MPT_INTERNAL, {"ILLEGAL_ADDRESS"}));
  EXPECT(says(mpt_trainer_save(trainer, (weights + ".none").c_str()), MPT_INTERNAL, {"ILLEGAL_ADDRESS"}));
  EXPECT(access((weights + ".none").c_str(), F_OK) != 0);
  mpt_trainer_destroy(trainer);
}

void runIn(void (*test)(const std::string &), const std::string &weights) {
  fflush(stderr);
  pid_t child = fork();
  if (child == 0) {
    test(weights);
    _exit(failures ? 1 : 0);
  }
  int status = 1;
  waitpid(child, &status, 0);
  EXPECT(status == 0);
}

} // namespace

int main() {
  std::string weights = writeWeights();
  for (auto test : {noDriver, notTheDriver, oldDriver, notStarting, noDevice, options, noBlas, notBlas, memory, models,
                    pointers, kernels, folders, uncapturable, allocations, sticky})
    runIn(test, weights);
  unlink(weights.c_str());
  return finish("cuda-failure");
}
