// SPDX-License-Identifier: Apache-2.0
// The whole compiler on damaged models: import, training form, precision, down to machine-independent kernels. Every
// one ends in success or in a message; none crashes, hangs or takes more memory than a model of its size may.
//
//   MutationTest SEEDS [first [count]]
//
// Each model comes from a text or a binary model in the folder SEEDS and a number; a failure names both, and leaves the
// model behind.
#include "Mutate.h"

#include "mpt/Driver/Compile.h"

#include "onnx/defs/parser.h"
#include "onnx/onnx_pb.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr unsigned cpuSecondsEach = 30, secondsEach = 600; // a busy machine is no hang
constexpr uint64_t batch = 40;
constexpr rlim_t mostMemory = rlim_t(6) << 30;

struct Seed {
  std::string name, bytes;
};

std::vector<Seed> readSeeds(const char *folder) {
  std::vector<Seed> seeds;
  std::error_code code;
  for (llvm::sys::fs::directory_iterator file(folder, code), end; file != end && !code; file.increment(code)) {
    auto text = llvm::MemoryBuffer::getFile(file->path());
    if (text && llvm::StringRef(file->path()).ends_with(".onnx")) {
      seeds.push_back({llvm::sys::path::stem(file->path()).str(), (*text)->getBuffer().str()});
      continue;
    }
    onnx::ModelProto model;
    if (!text || !onnx::OnnxParser((*text)->getBuffer().str().c_str()).Parse(model).IsOK()) {
      fprintf(stderr, "%s: expected ONNX text\n", file->path().c_str());
      exit(1);
    }
    seeds.push_back({llvm::sys::path::stem(file->path()).str(), model.SerializeAsString()});
  }
  std::sort(seeds.begin(), seeds.end(), [](const Seed &a, const Seed &b) { return a.name < b.name; });
  return seeds;
}

void write(const std::string &path, const std::string &bytes) {
  std::error_code code;
  llvm::raw_fd_ostream(path, code) << bytes;
}

/// The model, and the files beside it; files of an earlier one go.
void writeParts(const std::string &path, const mpt::fuzz::Parts &parts) {
  write(path, parts.model);
  for (auto [name, bytes] : {std::pair("checkpoint", &parts.checkpoint), std::pair("optimizer", &parts.optimizer),
                             std::pair("evaluation", &parts.evaluation)}) {
    std::string beside = path + "." + name;
    bytes->empty() ? (void)unlink(beside.c_str()) : write(beside, *bytes);
  }
}

/// Compiles the model at `path`; true when it failed with a message, or succeeded.
bool compileOne(const std::string &path, uint64_t number) {
  static const char *const policies[] = {"fp32",    "amp-f16",         "amp-bf16", "fp8-hybrid",
                                         "als-f16", "pure-f16-static", "fp8-e5m2"};
  static const char *const optimizers[] = {"sgd,lr=0.1", "adamw", "sgd,lr=0.1,momentum=0.9", "adagrad"};
  std::string policy = std::string("--policy=") + policies[number % std::size(policies)];
  std::string optimizer = std::string("--optimizer=") + optimizers[number % 4];
  std::string text, said;
  llvm::raw_string_ostream out(text), log(said);
  std::vector<std::string> words{path, policy, "--quiet", "--to=fusion", "--bind", "N=4"};
  if (number % 2) // others train as the file says, if it says so
    words.push_back(optimizer);
  for (auto [flag, file] : {std::pair("--checkpoint=", "checkpoint"), std::pair("--optimizer-model=", "optimizer"),
                            std::pair("--eval-model=", "evaluation")})
    if (std::string beside = path + "." + file; llvm::sys::fs::exists(beside))
      words.push_back(flag + beside);
  auto options = mpt::CompileOptions::parse(std::vector<llvm::StringRef>(words.begin(), words.end()));
  bool ok = options && succeeded(mpt::compile(*options, out, log));
  return ok || llvm::StringRef(said).contains("error: ");
}

/// Runs models [first, end) in a process of their own; false when it died, or one failed without a word.
bool survives(const std::vector<Seed> &seeds, uint64_t first, uint64_t end, const std::string &path) {
  fflush(nullptr);
  pid_t child = fork();
  if (child == 0) {
    rlimit memory{mostMemory, mostMemory}, core{0, 0};
    setrlimit(RLIMIT_AS, &memory);
    setrlimit(RLIMIT_CORE, &core);
    for (uint64_t i = first; i < end; ++i) {
      itimerval processor{{0, 0}, {cpuSecondsEach, 0}};
      setitimer(ITIMER_PROF, &processor, nullptr);
      alarm(secondsEach);
      const Seed &seed = seeds[i % seeds.size()];
      // The first round is the seeds themselves.
      writeParts(path, mpt::fuzz::split(i < seeds.size() ? seed.bytes : mpt::fuzz::mutateModel(seed.bytes, i)));
      if (!compileOne(path, i))
        _exit(2);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    fprintf(stderr, "models %llu to %llu: died of signal %d%s\n", static_cast<unsigned long long>(first),
            static_cast<unsigned long long>(end - 1), WTERMSIG(status),
            WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGPROF ? " (hang)" : "");
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

} // namespace

int main(int argc, char **argv) {
  std::vector<Seed> seeds = readSeeds(argc > 1 ? argv[1] : ".");
  uint64_t first = argc > 2 ? strtoull(argv[2], nullptr, 10) : 0;
  uint64_t end = first + (argc > 3 ? strtoull(argv[3], nullptr, 10) : 1000);
  char name[] = "/tmp/mpt-mutation-XXXXXX";
  std::string folder = mkdtemp(name), path = folder + "/model.onnx";
  int failures = 0;
  for (uint64_t i = first; i < end; i += batch) {
    uint64_t stop = std::min(i + batch, end);
    if (survives(seeds, i, stop, path))
      continue;
    for (uint64_t k = i; k < stop; ++k) {
      if (survives(seeds, k, k + 1, path))
        continue;
      std::string kept = folder + "/" + seeds[k % seeds.size()].name + "-" + std::to_string(k) + ".onnx";
      rename(path.c_str(), kept.c_str());
      fprintf(stderr, "model %llu fails: %s\n", static_cast<unsigned long long>(k), kept.c_str());
      ++failures;
    }
  }
  if (!failures)
    llvm::sys::fs::remove_directories(folder);
  printf("mutations: %llu models, %d failures\n", static_cast<unsigned long long>(end - first), failures);
  return failures ? 1 : 0;
}
