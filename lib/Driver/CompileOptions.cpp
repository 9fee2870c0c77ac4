// SPDX-License-Identifier: Apache-2.0
// The compiler's command line: flags, and what may not stand together.
#include "CompileFlags.h"

#include "mpt/Autodiff/LossSpec.h"
#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Driver/DebugOnly.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Precision/BuiltinPolicies.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Support/NearNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include <cmath>
#include <functional>
#include <optional>

using namespace llvm;
using namespace mpt;

namespace {

Error bad(const Twine &message) { return createStringError(message); }

/// Hands the target its own flags, whatever their place among the words.
Error configureTarget(CompileOptions &options) {
  std::unique_ptr<target::Target> target = target::createTarget(options.target ? options.target->name() : "");
  auto takes = [](const target::Target &target, StringRef name) {
    return any_of(target.flags(), [&](const target::TargetFlag &flag) { return flag.name == name; });
  };
  for (const auto &[name, value] : options.targetFlags) {
    if (takes(*target, name)) {
      if (std::optional<std::string> expected = target->set(name, value))
        return bad("expected " + Twine(*expected) + " for " + name + ", got '" + value + "' [mpt-bad-value]");
      continue;
    }
    for (const std::unique_ptr<target::Target> &other : target::allTargets())
      if (takes(*other, name))
        return bad(name + " needs --target=" + other->name());
  }
  options.target = std::move(target);
  return Error::success();
}

} // namespace

/// Several sizes are one library; whatever else a compilation makes has one.
static Error checkSizes(const CompileOptions &options) {
  constexpr size_t mostSizes = 16;
  size_t count = 1;
  for (const Binding &binding : options.bindings)
    count = std::min(count * binding.extents.size(), 2 * mostSizes);
  if (count == 1)
    return Error::success();
  auto refuse = [](const Twine &what) { return bad("expected one extent for each --bind with " + what); };
  if (count > mostSizes)
    return bad("expected at most " + Twine(mostSizes) +
               " sizes, got more: the library has every combination of the extents that --bind lists");
  if (options.replicas != "1")
    return refuse("--replicas: replicas have rows of one shape");
  if (options.emit == EmitKind::ONNX)
    return refuse("--emit=onnx: a graph has one shape");
  if (StringRef(options.input).ends_with(".mlir"))
    return refuse("an .mlir file, whose shapes are static");
  if (options.to == "import")
    return refuse("--to=import: sizes are joined after phase training");
  return Error::success();
}

std::string CompileOptions::flagOfStepFile() const {
  if (onnxForm != "joint")
    return "--onnx-form=" + onnxForm;
  if (onnxState != "initializers")
    return "--onnx-state=" + onnxState;
  return onnxOps != "all" ? "--onnx-ops=" + onnxOps : "";
}

/// A report is of a phase's result, and memory is planned for libraries alone: other reports and limits are refused.
static Error checkProducts(const CompileOptions &options) {
  auto order = [](StringRef phase) { return phaseNames().find(phase); };
  const bool writesOnnx = options.emit == EmitKind::ONNX;
  if (options.products && (options.memoryBudget || options.debugNonfinite))
    return bad("expected a library of the model for --memory-budget and --debug-nonfinite, got --emit=products");
  auto refuse = [](const Twine &flag, const Twine &why) {
    return bad("expected a library for " + flag + ", got --emit=onnx: " + why);
  };
  if (!options.budgetSlots.empty() && !options.slots.empty())
    return bad("expected one of --slots=" + options.slots + " and slots= of --memory-budget, got both");
  if (writesOnnx && options.memoryBudget)
    return refuse("--memory-budget", "whatever runs the file plans its memory");
  if (PolicyName policy = PolicyName::of(options.policy);
      options.batchInvariant && (policy.measures || StringRef(policy.name).starts_with("auto")))
    return bad("expected a policy whose types do not depend on measurements for --batch-invariant, got " +
               options.policy);
  if (writesOnnx && options.masters == "packed")
    return refuse("--masters=packed", "the file has a state for each type in which parameters are read");
  if (writesOnnx && options.batchInvariant)
    return refuse("--batch-invariant", "whatever runs the file orders its sums");
  if (writesOnnx && options.debugNonfinite)
    return refuse("--debug-nonfinite", "the checks are the library's");
  if (writesOnnx && !options.evalModel.empty())
    return refuse("--eval-model", "the file holds the step, not its evaluation");
  if (std::string flag = options.flagOfStepFile(); !writesOnnx && !options.products && !flag.empty())
    return bad("expected --emit=onnx for " + flag + ", which says how the file is written, got another product");
  if (!options.state.empty() && (!writesOnnx || options.trains || options.policy != "fp32"))
    return bad(
        "expected --emit=onnx alone for --state, which changes nothing but values; rewrite the file for a policy "
        "after that");
  if (!options.data.empty() && (!options.ranges.empty() || StringRef(options.input).ends_with(".mlir")))
    return bad("expected a model without --ranges for --data, which measures them, got '" + options.input +
               (options.ranges.empty() ? "'" : "' with --ranges=" + options.ranges));
  if (options.averaged && options.state.empty())
    return bad("expected --state with --averaged, got none");
  for (StringRef report : options.reports) {
    StringRef kind = report.split('=').first, phase = kind == "precision" ? kind : "memory";
    if (writesOnnx && phase == "memory")
      return refuse("--report=" + kind, "whatever runs the file plans its memory and its kernels");
    if (!options.to.empty() && order(options.to) < order(phase))
      return bad("expected --to=" + phase + " or a later phase with --report=" + kind + ", got --to=" + options.to);
  }
  return Error::success();
}

/// Flags about many processes.
static Error checkReplicas(const CompileOptions &options) {
  if (options.replicas != "1" && options.accumulate > 1)
    return bad("expected --accumulate=1 with --replicas: a process runs its replicas one after the other and "
               "communicates once a step, so --replicas=" +
               Twine(options.accumulate) + " does on one process what --accumulate does");
  if (options.reduceType != "f32" && options.replicas == "1")
    return bad("expected --replicas with --reduce-type, got one replica: nothing travels");
  if (options.shardOptimizer && (options.replicas == "1" || options.replicas == "any"))
    return bad("expected --replicas=V with --shard-optimizer, got --replicas=" + options.replicas +
               ": masters and slots are divided over V replicas, and a process has those of its own");
  if (options.syncBatchNorm && (options.replicas == "1" || options.replicas == "any"))
    return bad("expected --replicas=V with --sync-batch-norm, got --replicas=" + options.replicas +
               ": statistics are those of V replicas");
  if (options.replicas != "1" && options.forwardOnly)
    return bad("expected no --forward-only with --replicas: replicas share gradients");
  if (options.replicas != "1" && options.emit == EmitKind::ONNX && options.to.empty())
    return bad("expected a library for --replicas, got --emit=onnx: ONNX has no operators for collectives");
  return Error::success();
}

Expected<CompileOptions> CompileOptions::parse(ArrayRef<StringRef> words) {
  CompileOptions options;
  StringRef ofStep; // a flag that only a step has a use for
  for (size_t i = 0; i < words.size(); ++i) {
    StringRef word = words[i];
    if (!word.starts_with("-") || word == "-") {
      if (!options.input.empty())
        return bad("expected one input file, got '" + options.input + "' and '" + word + "'");
      options.input = word.str();
      continue;
    }
    auto [name, value] = word.split('=');
    auto flag = find_if(flagTable(), [name = name](const Flag &f) { return f.name == name; });
    if (flag == flagTable().end())
      return bad("unknown flag '" + name + "'; " +
                 whatThereIs(name, map_to_vector(flagTable(), [](const Flag &f) { return f.name; })) +
                 "; --help lists the flags [mpt-unknown-flag]");
    bool hasValue = word.size() != name.size();
    if (flag->value.empty() && hasValue)
      return bad("expected no value for " + name);
    if (!flag->value.empty() && !hasValue) {
      if (i + 1 == words.size())
        return bad("expected " + flag->value + " after " + name);
      value = words[++i];
    }
    if (is_contained({"--loss", "--optimizer", "--accumulate", "--clip-norm", "--ema"}, name))
      ofStep = name;
    options.trains |=
        !ofStep.empty() || is_contained({"--forward-only", "--backward", "--gradient", "--next", "--seed",
                                         "--checkpoint", "--optimizer-model", "--eval-model", "--replicas"},
                                        name);
    if (std::optional<std::string> expected = flag->set(options, value))
      return bad("expected " + *expected + " for " + name + ", got '" + value + "' [mpt-bad-value]");
  }
  if (options.input.empty())
    return bad("expected an input file (.onnx, .onnxtxt or .mlir)");
  if (Error wrong = configureTarget(options))
    return wrong;
  if (options.forwardOnly && !ofStep.empty())
    return bad("expected no " + ofStep + " with --forward-only, which makes no training step");
  if (Error wrong = checkReplicas(options))
    return wrong;
  if (!options.to.empty())
    options.emit = EmitKind::MLIR;
  if (Error wrong = checkSizes(options))
    return wrong;
  if (Error wrong = checkProducts(options))
    return wrong;
  if (options.emit == EmitKind::ONNX)
    options.masters = "copied";
  if (options.name.empty())
    options.name = sys::path::stem(options.input).str();
  if (options.output.empty())
    options.output = is_contained({EmitKind::Library, EmitKind::Static, EmitKind::Products}, options.emit) ? "." : "-";
  return options;
}

std::vector<Size> CompileOptions::sizes() const {
  std::vector<Size> sizes(1);
  for (const Binding &binding : bindings) {
    std::vector<Size> longer;
    for (const Size &size : sizes)
      for (int64_t extent : binding.extents) {
        Size &next = longer.emplace_back(size);
        for (const std::string &symbol : binding.symbols) {
          next.bindings[symbol] = extent;
          if (binding.extents.size() > 1)
            next.name += (next.name.empty() ? "" : ",") + symbol + "=" + std::to_string(extent);
        }
      }
    sizes = std::move(longer);
  }
  return sizes;
}

Expected<std::string> CompileOptions::help(StringRef wanted) {
  registerTargets();
  auto names = map_to_vector(flagGroups(), [](const FlagGroup &group) { return group.name; });
  if (!wanted.empty() && !is_contained(names, wanted))
    return bad("expected " + join(names, "|") + " for --help, got '" + wanted + "'");
  std::string text = "usage: mpt-opt MODEL.onnx [flags]          compile a model to a training library\n"
                     "       mpt-opt FILE.mlir --<pass> ...      run passes (mpt-opt --help-passes lists them)\n"
                     "       mpt-opt --version | --list-policies | --list-losses | --list-optimizers | --list-ops |\n"
                     "               --explain=CODE | --completion=bash|zsh | --help=" +
                     join(names, "|") + "\n";
  for (const FlagGroup &group : flagGroups()) {
    if (!wanted.empty() && group.name != wanted)
      continue;
    text += formatv("\n{0}: {1}, as in\n    {2}\n", group.name, group.heading, group.example);
    for (const Flag &flag : group.flags())
      if (!flag.text.empty())
        text += formatv("  {0,-22} {1}\n", (flag.name + (flag.value.empty() ? "" : "=" + flag.value)).str(), flag.text);
  }
  return text;
}

bool CompileOptions::takesValue(StringRef name) {
  return any_of(flagTable(), [&](const Flag &flag) { return flag.name == name && !flag.value.empty(); });
}

std::vector<Described> CompileOptions::flags() {
  std::vector<Described> all;
  for (const Flag &flag : flagTable())
    all.push_back({flag.name, flag.value.str()});
  return all;
}
