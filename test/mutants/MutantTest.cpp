// SPDX-License-Identifier: Apache-2.0
// Mutation of verified modules: whatever changes a step's behaviour under scale must be refused by precision-verify.
//
//   MutantTest MODELS [--each=N] [--every=N] [--list=FILE] [--policy=NAME] [--phase=NAME] [--target=NAME]
//
// Compiles each recipe (a model of the folder with flags) under each policy to the end of precision, makes mutants, and
// verifies them. With --phase fusion or library, the passes that verify these phases do, and dependence on the scale
// is wrong. --each: how many other values an operand is exchanged for; --every: one mutant of so many, evenly;
// --list: where survivors are written. Fails where a survivor's step is wrong (StepOracle.h), or where a right module
// is refused.
#include "Mutants.h"
#include "Recipes.h"
#include "StepOracle.h"

#include "mpt/Driver/Compile.h"
#include "passes/fusion/Passes.h"
#include "passes/precision/Passes.h"

#include "mlir/Pass/PassManager.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>

using namespace mlir;
using namespace mpt;
using namespace mpt::mutants;

namespace {

struct Options {
  std::string folder, list, policy, phase = "precision", target = "cpu";
  unsigned each = 2, every = 1;
};

struct Counts {
  int64_t made = 0, refused = 0, equivalent = 0, legitimate = 0, wrong = 0;
  void operator+=(const Counts &other) {
    made += other.made;
    refused += other.refused;
    equivalent += other.equivalent;
    legitimate += other.legitimate;
    wrong += other.wrong;
  }
};

/// Whether the passes that verify the phase let a module pass; diagnostics are not shown.
bool passes(ModuleOp module, bool lowered) {
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &) { return success(); });
  PassManager manager(module.getContext());
  if (lowered) {
    manager.addPass(createVerifyAccumulators());
    manager.addPass(createVerifyScales());
  } else {
    manager.addPass(createVerify());
  }
  return succeeded(manager.run(module));
}

class Test {
public:
  explicit Test(Options options) : options(std::move(options)) {
    if (!this->options.list.empty()) {
      std::error_code code;
      list = std::make_unique<llvm::raw_fd_ostream>(this->options.list, code);
    }
  }

  /// The number of failures.
  int run() {
    printf(
        "| policy | mutants | refused | equivalent | another legitimate step | wrong |\n|---|---|---|---|---|---|\n");
    Counts total;
    for (StringRef policy : policies) {
      if (!options.policy.empty() && policy != options.policy)
        continue;
      Counts counts;
      for (const Recipe &recipe : recipes)
        if (recipe.suits(policy))
          counts += mutate(recipe, policy);
      print(policy, counts);
      total += counts;
    }
    print("all", total);
    return failures + static_cast<int>(total.wrong);
  }

private:
  static void print(StringRef what, const Counts &counts) {
    printf("| %s | %lld | %lld | %lld | %lld | %lld |\n", what.str().c_str(), static_cast<long long>(counts.made),
           static_cast<long long>(counts.refused), static_cast<long long>(counts.equivalent),
           static_cast<long long>(counts.legitimate), static_cast<long long>(counts.wrong));
    fflush(stdout);
  }

  Counts mutate(const Recipe &recipe, StringRef policy) {
    std::string path = options.folder + "/" + recipe.model + ".onnxtxt", chosen = ("--policy=" + policy).str();
    std::string last = "--to=" + options.phase, kernels = "--target=" + options.target;
    std::vector<StringRef> words = {path, chosen, "--quiet", last, kernels};
    words.insert(words.end(), recipe.flags.begin(), recipe.flags.end());
    title = llvm::join(words, " ");
    llvm::Expected<CompileOptions> parsed = CompileOptions::parse(words);
    if (!parsed)
      return fail(llvm::toString(parsed.takeError()));
    MLIRContext context;
    std::string said;
    llvm::raw_string_ostream log(said);
    prepareContext(context, log);
    auto module = compileModule(*parsed, context, llvm::nulls(), log);
    if (failed(module))
      return fail(said);
    Behaviour right = behaviourOf(**module);
    if (!right.ran)
      return fail("expected the interpreter to run the step");
    Counts counts;
    std::vector<Mutation> all = mutationsOf(**module, options.each, 1 + next);
    for (const Mutation &mutation : all)
      if (next++ % options.every == 0)
        judge(**module, right, mutation, counts);
    return counts;
  }

  void judge(ModuleOp module, const Behaviour &right, const Mutation &mutation, Counts &counts) {
    OwningOpRef<ModuleOp> mutant = apply(module, mutation);
    if (!mutant)
      return; // no module: the IR's own verifiers refuse it
    ++counts.made;
    bool lowered = options.phase != "precision";
    if (!passes(*mutant, lowered)) {
      ++counts.refused;
      return;
    }
    Behaviour behaviour = behaviourOf(*mutant);
    Verdict verdict = lowered ? compareUnderScale(right, behaviour) : compare(right, behaviour);
    ++(verdict == Verdict::equivalent   ? counts.equivalent
       : verdict == Verdict::legitimate ? counts.legitimate
                                        : counts.wrong);
    std::string text = title + ": " + describe(module, mutation) + "\n";
    if (verdict == Verdict::wrong)
      fprintf(stderr, "survives, and is wrong: %s", text.c_str());
    if (list)
      *list << (verdict == Verdict::equivalent   ? "equivalent "
                : verdict == Verdict::legitimate ? "legitimate "
                                                 : "wrong ")
            << text;
  }

  Counts fail(const std::string &why) {
    fprintf(stderr, "%s: %s\n", title.c_str(), why.c_str());
    ++failures;
    return {};
  }

  Options options;
  std::unique_ptr<llvm::raw_fd_ostream> list;
  std::string title;
  uint64_t next = 0; ///< counts mutants over all modules
  int failures = 0;
};

} // namespace

int main(int argc, char **argv) {
  Options options;
  bool wrong = false;
  for (int i = 1; i < argc; ++i) {
    StringRef word(argv[i]);
    if (word.consume_front("--each="))
      wrong |= word.getAsInteger(10, options.each);
    else if (word.consume_front("--every="))
      wrong |= word.getAsInteger(10, options.every);
    else if (word.consume_front("--list="))
      options.list = word.str();
    else if (word.consume_front("--policy="))
      options.policy = word.str();
    else if (word.consume_front("--phase="))
      options.phase = word.str();
    else if (word.consume_front("--target="))
      options.target = word.str();
    else
      options.folder = word.str();
  }
  if (wrong || options.every == 0) {
    llvm::errs() << "MutantTest: expected whole numbers for --each and --every\n";
    return 2;
  }
  return Test(options).run() ? 1 : 0;
}
