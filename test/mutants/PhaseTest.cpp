// SPDX-License-Identifier: Apache-2.0
// Phases fusion and library keep the scales, the sums and the bits of a verified step.
//
//   PhaseTest MODELS [--policy=NAME]
//
// Compiles each recipe under each policy to the end of precision, fusion and library, for every target's kernels, and
// runs all three: in FP64 with two scales far apart, and rounding exactly, with steps that are finite, that overflow
// and that are not. Prints a table; fails where a later phase's run is another one.
#include "Recipes.h"
#include "StepOracle.h"

#include "mpt/Driver/Compile.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>

using namespace mlir;
using namespace mpt;
using namespace mpt::mutants;

namespace {

constexpr StringRef targets[] = {"cpu", "cuda"};
constexpr StringRef laterPhases[] = {"fusion", "library"};

class Test {
public:
  explicit Test(std::string folder) : folder(std::move(folder)) {}

  /// Prints a row and returns the number of phases whose step is another one.
  int compareAll(StringRef policy) {
    int64_t wrong = 0, inexact = 0, compared = 0;
    for (const Recipe &recipe : recipes)
      for (StringRef target : targets) {
        if (!recipe.suits(policy))
          continue;
        std::optional<PhaseRuns> right = runsOf(recipe, policy, target, "precision");
        for (StringRef phase : laterPhases) {
          std::optional<PhaseRuns> found = runsOf(recipe, policy, target, phase);
          ++compared;
          std::string other = right && found ? differenceUnderScale(*right, *found) : "it does not run",
                      bits = other.empty() ? differenceOfBits(*right, *found) : "";
          wrong += !other.empty();
          inexact += !bits.empty();
          if (!other.empty() || !bits.empty())
            fprintf(stderr, "%s: %s%s\n", title.c_str(),
                    other.empty() ? "other bits: " : "another step: ", (other + bits).c_str());
        }
      }
    printf("| `%s` | %lld | %lld | %lld |\n", policy.str().c_str(), static_cast<long long>(compared),
           static_cast<long long>(wrong), static_cast<long long>(inexact));
    fflush(stdout);
    return static_cast<int>(wrong);
  }

private:
  std::optional<PhaseRuns> runsOf(const Recipe &recipe, StringRef policy, StringRef target, StringRef phase) {
    std::string path = folder + "/" + recipe.model + ".onnxtxt", chosen = ("--policy=" + policy).str(),
                last = ("--to=" + phase).str(), kernels = ("--target=" + target).str();
    std::vector<StringRef> words = {path, chosen, kernels, "--quiet", last};
    words.insert(words.end(), recipe.flags.begin(), recipe.flags.end());
    title = llvm::join(words, " ");
    llvm::Expected<CompileOptions> parsed = CompileOptions::parse(words);
    if (!parsed) {
      fprintf(stderr, "%s\n", llvm::toString(parsed.takeError()).c_str());
      return std::nullopt;
    }
    MLIRContext context;
    std::string said;
    llvm::raw_string_ostream log(said);
    prepareContext(context, log);
    auto module = compileModule(*parsed, context, llvm::nulls(), log);
    std::optional<PhaseRuns> runs = failed(module) ? std::nullopt : phaseRunsOf(**module);
    if (!runs)
      fprintf(stderr, "%s: %s\n", title.c_str(), said.c_str());
    return runs;
  }

  std::string folder, title;
};

} // namespace

int main(int argc, char **argv) {
  std::string folder, only;
  for (int i = 1; i < argc; ++i) {
    StringRef word(argv[i]);
    if (word.consume_front("--policy="))
      only = word.str();
    else
      folder = word.str();
  }
  printf("| policy | phases | another step | other bits |\n|---|---|---|---|\n");
  int wrong = 0, rows = 0;
  Test test(folder);
  for (StringRef policy : policies)
    if (only.empty() || policy == only) {
      wrong += test.compareAll(policy);
      ++rows;
    }
  return wrong || !rows ? 1 : 0;
}
