// SPDX-License-Identifier: Apache-2.0
// mpt-run: words to a command, and the command carried out.
#include "mpt/Driver/RunCommand.h"

#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Driver/Compile.h"
#include "mpt/Driver/Questions.h"
#include "mpt/Lowering/Emulation/ElementCode.h"
#include "mpt/Precision/Settings.h"
#include "mpt/Support/Files.h"
#include "mpt/Target/Runtime.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/SourceMgr.h"
#include <functional>
#include <list>

using namespace mlir;
using namespace mpt;

namespace {

using Setter = std::function<bool(RunCommand &, StringRef)>;

struct RunFlag {
  StringRef name, value, text; ///< an empty `value` means a switch
  Setter set;                  ///< false when the value does not fit
};

Setter file(std::string RunOptions::*member) {
  return [=](RunCommand &command, StringRef value) {
    command.run.*member = value.str();
    return !value.empty();
  };
}
Setter mode(RunMode mode) {
  return [=](RunCommand &command, StringRef) {
    command.mode = mode;
    return true;
  };
}
template <typename Limit> Setter limit(Limit CertificateLimits::*member) {
  return [=](RunCommand &command, StringRef value) {
    double number = 0.0;
    if (value.getAsDouble(number) || !(number >= 0.0))
      return false;
    command.limits.*member = number;
    return true;
  };
}

StringRef coreNames() {
  static const std::string text = llvm::join(TensorCore::names(), "|");
  return text;
}

const std::vector<RunFlag> &flags() {
  static const std::vector<RunFlag> table = {
      {"--function", "NAME", "function to run (every public one without arguments)", file(&RunOptions::function)},
      {"--inputs", "FILE", "safetensors file of inputs", file(&RunOptions::inputs)},
      {"--state", "FILE", "safetensors file of initial states", file(&RunOptions::state)},
      {"--outputs", "FILE", "write results to this file", file(&RunOptions::outputs)},
      {"--new-state", "FILE", "write final states to this file", file(&RunOptions::newState)},
      {"--expect", "FILE", "compare results with this file's, within the error model's tolerance",
       file(&RunOptions::expect)},
      {"--tolerances", "FILE", "write the error model's tolerance of each result", file(&RunOptions::tolerances)},
      {"--fp64", "", "compute every float in FP64",
       [](RunCommand &command, StringRef) { return command.run.oracle = true; }},
      {"--as", coreNames(), "add up products of 8- and 16-bit operands as the Tensor Cores of this architecture",
       [](RunCommand &command, StringRef value) {
         command.core = TensorCore::named(value);
         return command.core.has_value();
       }},
      {"--steps", "N", "calls in a row (one, or one for each batch)",
       [](RunCommand &command, StringRef value) {
         return !value.getAsInteger(10, command.steps) && command.steps > 0;
       }},
      {"--calibrate", "",
       "run training steps (with --emit=onnx, the graph itself) in FP32 and write the ranges of all values",
       mode(RunMode::Calibrate)},
      {"--blame", "", "run steps and name the node at which one stopped being finite", mode(RunMode::Blame)},
      {"--certify", "", "compare steps in the policy with FP64 and write a certificate", mode(RunMode::Certify)},
      {"--reference", "FILE", "certify an .mlir file against this FP32 form of the same step",
       [](RunCommand &command, StringRef value) {
         command.reference = value.str();
         return !value.empty();
       }},
      {"--batch", "FILE", "safetensors file with the inputs of one step (repeatable)",
       [](RunCommand &command, StringRef value) {
         command.batches.push_back(value.str());
         return !value.empty();
       }},
      {"--library", "DIR", "certify the library in this folder; it is compiled where the folder has none",
       [](RunCommand &command, StringRef value) {
         command.library = value.str();
         return !value.empty();
       }},
      {"--max-loss-difference", "X", "certificate: relative, of any step (0.01; 8-bit types 0.06)",
       limit(&CertificateLimits::lossDifference)},
      {"--min-gradient-cosine", "X", "certificate: of any parameter (by the error model)",
       limit(&CertificateLimits::gradientCosine)},
      {"--max-gradient-error", "X", "certificate: relative norm, of any parameter (by the error model)",
       limit(&CertificateLimits::gradientError)},
      {"--max-update-error", "X", "certificate: relative norm, of any parameter (by the error model)",
       limit(&CertificateLimits::updateError)},
      {"--max-ulp", "X", "certificate: mean error of a tensor in units of its type's last place (by the error model)",
       limit(&CertificateLimits::ulp)},
      {"--max-overflow", "X", "certificate: share of a tensor's values (0)", limit(&CertificateLimits::overflowShare)},
      {"--max-underflow", "X", "certificate: share of a tensor's values (0.05)",
       limit(&CertificateLimits::underflowShare)},
      {"--max-skipped", "X", "certificate: share of steps (0.5)", limit(&CertificateLimits::skippedShare)},
      {"-o", "FILE", "where calibrate, blame and certify write their JSON (standard output)",
       [](RunCommand &command, StringRef value) {
         command.output = value.str();
         return !value.empty();
       }},
  };
  return table;
}

constexpr int kFound = 1, kBroken = 2;

/// Carries out one command.
class Runner {
public:
  explicit Runner(const RunCommand &command) : command(command) { prepareContext(context, llvm::errs()); }

  int run() {
    // Ranges are measured in FP32, and policy auto has none before.
    OwningOpRef<ModuleOp> module = command.mode == RunMode::Calibrate ? loadReference() : load("");
    if (!module)
      return kBroken;
    if (command.core && hasOrderedSums(*module)) {
      llvm::errs()
          << "mpt-run: expected a module without --batch-invariant for --as, got one whose sums are ordered as "
             "a processor's\n";
      return kBroken;
    }
    if (command.mode == RunMode::Run) {
      RunOptions options = command.run;
      options.steps = std::max<int64_t>(1, command.steps);
      std::unique_ptr<ElementCode> elements = createElementCode();
      options.elements = elements.get();
      options.core = core();
      return succeeded(runModule(*module, options)) ? 0 : kFound;
    }
    FailureOr<std::vector<Batch>> batches = readBatches(*module, command.batches);
    if (failed(batches))
      return kBroken;
    if (command.mode == RunMode::Blame)
      return runBlame(*module, *batches);
    return command.mode == RunMode::Calibrate ? runCalibration(*module, *batches) : runCertification(*module, *batches);
  }

private:
  const TensorCore *core() const { return command.core ? &*command.core : nullptr; }
  bool isText() const { return command.input == "-" || StringRef(command.input).ends_with(".mlir"); }

  /// The input as a module ready to run; `policy` overrides the one asked for, with its loss scale. Null after an error
  /// was printed.
  OwningOpRef<ModuleOp> load(StringRef policy, StringRef lossScale = "none") {
    if (isText())
      return loadText(command.input);
    std::vector<std::string> words = command.compileWords;
    words.push_back(command.input);
    // With --emit=onnx the graph itself is meant, not a training step.
    bool isGraph = command.mode == RunMode::Calibrate && llvm::is_contained(words, "--emit=onnx");
    words.push_back(isGraph ? "--to=import" : "--to=precision");
    words.push_back("--quiet");
    if (!policy.empty()) {
      words.push_back(("--policy=" + policy).str());
      words.push_back(("--loss-scale=" + lossScale).str());
    }
    std::optional<CompileOptions> options = parse(words);
    if (!options)
      return {};
    FailureOr<OwningOpRef<ModuleOp>> module = compileModule(*options, context, llvm::outs(), llvm::errs());
    return failed(module) ? OwningOpRef<ModuleOp>() : std::move(*module);
  }

  static std::optional<CompileOptions> parse(ArrayRef<std::string> words) {
    SmallVector<StringRef> views(words.begin(), words.end());
    llvm::Expected<CompileOptions> options = CompileOptions::parse(views);
    if (options)
      return std::move(*options);
    llvm::errs() << "mpt-run: " << llvm::toString(options.takeError()) << "\n";
    return std::nullopt;
  }

  /// Errors in and about a text point at its lines.
  OwningOpRef<ModuleOp> loadText(StringRef path) {
    std::string message;
    std::unique_ptr<llvm::MemoryBuffer> buffer = openInputFile(path, &message);
    if (!buffer) {
      llvm::errs() << "mpt-run: " << message << "\n";
      return {};
    }
    // A manager each: its first buffer is the one that is parsed.
    sources.emplace_back();
    sources.back().AddNewSourceBuffer(std::move(buffer), llvm::SMLoc());
    diagnostics = std::make_unique<SourceMgrDiagnosticHandler>(sources.back(), &context);
    return parseSourceFile<ModuleOp>(sources.back(), &context);
  }

  /// The model in FP32.
  OwningOpRef<ModuleOp> loadReference(StringRef lossScale = "none") {
    if (!command.reference.empty())
      return loadText(command.reference);
    if (!isText())
      return load("fp32", lossScale);
    llvm::errs() << "mpt-run: expected a model (.onnx), or the FP32 form of '" << command.input
                 << "' as --reference=FILE.mlir\n";
    return {};
  }

  int runCalibration(ModuleOp wide, ArrayRef<Batch> batches) {
    FailureOr<RangeProfiles> profiles = calibrate(wide, batches, command.steps);
    return failed(profiles) ? kBroken : write(profiles->toJSON(), 0);
  }

  int runCertification(ModuleOp module, ArrayRef<Batch> batches) {
    // It counts the updates of each parameter where the module does.
    bool apart = PrecisionSettings::of(module).scaling.checksByParameter();
    OwningOpRef<ModuleOp> wide = loadReference(apart ? "1,check=parameter" : "none");
    if (!wide)
      return kBroken;
    FailureOr<std::unique_ptr<CertifiedStep>> step =
        command.library.empty() ? interpretedStep(module, core()) : loadLibrary(module);
    if (failed(step))
      return kBroken;
    FailureOr<llvm::json::Object> certificate =
        certify(**step, module, *wide, batches, command.steps, command.limits, core());
    if (failed(certificate))
      return kBroken;
    bool pass = certificate->getBoolean("pass").value_or(false);
    for (const llvm::json::Value &failure : *certificate->getArray("failures"))
      llvm::errs() << "mpt-run: " << failure.getAsString().value_or("") << "\n";
    return write(std::move(*certificate), pass ? 0 : kFound);
  }

  /// The library of the same words, compiled first where the folder has none.
  FailureOr<std::unique_ptr<CertifiedStep>> loadLibrary(ModuleOp module) {
    std::shared_ptr<const target::Target> target = target::createTarget("");
    if (!isText()) {
      std::vector<std::string> words = command.compileWords;
      words.insert(words.end(), {command.input, "--quiet", "-o", command.library});
      std::optional<CompileOptions> options = parse(words);
      if (!options)
        return failure();
      target = options->target ? options->target : target;
      if (!hasLibrary() && failed(compile(*options, llvm::outs(), llvm::errs())))
        return failure();
    }
    return emittedStep(module, command.library, target::findRuntime(target->runtimeLibrary()));
  }

  bool hasLibrary() const {
    if (!llvm::sys::fs::is_directory(command.library))
      return llvm::sys::fs::exists(command.library);
    std::error_code code;
    for (llvm::sys::fs::directory_iterator file(command.library, code), end; !code && file != end; file.increment(code))
      if (StringRef(file->path()).ends_with(".so"))
        return true;
    return false;
  }

  int runBlame(ModuleOp module, ArrayRef<Batch> batches) {
    FailureOr<std::vector<Blame>> found = blame(module, batches, command.steps);
    if (failed(found))
      return kBroken;
    llvm::json::Array rows;
    for (const Blame &blame : *found) {
      llvm::errs() << "mpt-run: " << blame.message() << "\n";
      rows.push_back(blame.toJSON());
    }
    return write(std::move(rows), found->empty() ? 0 : kFound);
  }

  int write(llvm::json::Value value, int status) {
    auto print = [&](raw_ostream &os) { os << llvm::formatv("{0:2}", value) << "\n"; };
    if (llvm::Error error = writeFile(command.output, print)) {
      llvm::errs() << "mpt-run: " << llvm::toString(std::move(error)) << "\n";
      return kBroken;
    }
    return status;
  }

  const RunCommand &command;
  MLIRContext context;
  std::list<llvm::SourceMgr> sources;
  std::unique_ptr<SourceMgrDiagnosticHandler> diagnostics;
};

} // namespace

llvm::Expected<RunCommand> RunCommand::parse(ArrayRef<StringRef> words) {
  RunCommand command;
  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    if (!word.starts_with("-") || word == "-") {
      if (!command.input.empty())
        return llvm::createStringError("expected one input file, got '" + command.input + "' and '" + word + "'");
      command.input = word.str();
      continue;
    }
    // One dash does as well as two.
    std::string name = word.split('=').first.str();
    StringRef value = word.split('=').second;
    bool hasValue = word.contains('=');
    auto flag = llvm::find_if(
        flags(), [&](const RunFlag &f) { return f.name == name || (name.size() > 2 && f.name == "-" + name); });
    if (flag == flags().end()) {
      command.compileWords.push_back(word.str());
      if (!hasValue && CompileOptions::takesValue(word) && i + 1 < words.size())
        command.compileWords.push_back(words[++i].str());
      continue;
    }
    if (flag->value.empty() ? hasValue : !hasValue && i + 1 == words.size())
      return llvm::createStringError("expected " + (flag->value.empty() ? "no value" : flag->value) + " for " +
                                     flag->name);
    if (!flag->value.empty() && !hasValue)
      value = words[++i];
    if (!flag->set(command, value))
      return llvm::createStringError("expected " + flag->value + " for " + flag->name + ", got '" + value +
                                     "' [mpt-bad-value]");
  }
  if (command.input.empty())
    return llvm::createStringError("expected an input file (.mlir, .onnx or .onnxtxt)");
  bool isModule = command.input == "-" || StringRef(command.input).ends_with(".mlir");
  if (isModule && !command.compileWords.empty())
    return llvm::createStringError("unknown flag '" + command.compileWords.front() +
                                   "' for an .mlir file; --help lists the flags [mpt-unknown-flag]");
  if (command.core && (command.run.oracle || (command.mode != RunMode::Run && command.mode != RunMode::Certify)))
    return llvm::createStringError(
        "expected --as alone or with --certify: --fp64, --calibrate and --blame add up in the "
        "types that the module says");
  if (command.mode != RunMode::Run && command.batches.empty())
    return llvm::createStringError("expected at least one --batch=FILE with the inputs of a step");
  return command;
}

std::string RunCommand::help() {
  std::string text = "usage: mpt-run FILE.mlir [flags]            run functions in the reference interpreter\n"
                     "       mpt-run MODEL.onnx [flags] [flags of mpt-opt]\n\n";
  for (const RunFlag &flag : flags())
    text +=
        llvm::formatv("  {0,-26} {1}\n", (flag.name + (flag.value.empty() ? "" : "=" + flag.value)).str(), flag.text);
  return text;
}

int mpt::runMain(ArrayRef<StringRef> words) {
  if (words.empty() || llvm::is_contained(words, "--help")) {
    llvm::outs() << RunCommand::help();
    return 0;
  }
  if (std::optional<bool> answer = answered("mpt-run", words))
    return *answer ? 0 : kBroken;
  llvm::Expected<RunCommand> command = RunCommand::parse(words);
  if (!command) {
    llvm::errs() << "mpt-run: " << llvm::toString(command.takeError()) << "\n";
    return kBroken;
  }
  return Runner(*command).run();
}
