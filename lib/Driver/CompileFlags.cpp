// SPDX-License-Identifier: Apache-2.0
// The table of the compiler's flags, and the setters that check their values.
#include "CompileFlags.h"

#include "mpt/Autodiff/LossSpec.h"
#include "mpt/Autodiff/OptimizerSpec.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Driver/DebugOnly.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Precision/BuiltinPolicies.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Support/NearNames.h"
#include "passes/Pipelines.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include <cmath>

using namespace llvm;
using namespace mpt;

namespace {

Setter text(std::string CompileOptions::*member) {
  return [=](CompileOptions &options, StringRef value) -> std::optional<std::string> {
    options.*member = value.str();
    return std::nullopt;
  };
}

Setter pattern(std::string CompileOptions::*member) {
  return [=](CompileOptions &options, StringRef value) -> std::optional<std::string> {
    std::string why;
    if (!Regex(value).isValid(why))
      return "a regular expression (" + why + ")";
    // Given again, a flag matches more names.
    std::string &text = options.*member;
    text = text.empty() ? value.str() : "(" + text + ")|(" + value.str() + ")";
    return std::nullopt;
  };
}

Setter toggle(bool CompileOptions::*member) {
  return [=](CompileOptions &options, StringRef) -> std::optional<std::string> {
    options.*member = true;
    return std::nullopt;
  };
}

/// One of the words between the bars of `words`.
Setter choice(std::string CompileOptions::*member, StringRef words) {
  return [=](CompileOptions &options, StringRef value) -> std::optional<std::string> {
    SmallVector<StringRef> known;
    words.split(known, '|');
    if (!is_contained(known, value))
      return words.str();
    options.*member = value.str();
    return std::nullopt;
  };
}

std::optional<std::string> setEmit(CompileOptions &options, StringRef value) {
  auto kind = StringSwitch<std::optional<EmitKind>>(value)
                  .Case("library", EmitKind::Library)
                  .Case("static", EmitKind::Static)
                  .Case("object", EmitKind::Object)
                  .Case("llvm", EmitKind::LLVM)
                  .Case("mlir", EmitKind::MLIR)
                  .Case("onnx", EmitKind::ONNX)
                  .Case("products", EmitKind::Products)
                  .Default(std::nullopt);
  if (!kind)
    return "library|static|object|llvm|mlir|onnx|products";
  options.emit = *kind;
  options.products = kind == EmitKind::Products;
  return std::nullopt;
}

/// Given again, the flag adds one of several losses.
std::optional<std::string> setLoss(CompileOptions &options, StringRef value) {
  std::string all = options.hasLoss ? options.loss + ";" + value.str() : value.str();
  auto parsed = parseLossSpecs(all);
  if (!parsed) {
    std::string message = toString(parsed.takeError());
    return StringRef(message).split(", got").first.drop_front(StringRef("expected ").size()).str();
  }
  options.hasLoss = true;
  options.loss = all;
  return std::nullopt;
}

/// NAME=OUTPUT, where names may have colons and slashes but no equals sign.
Setter roleSetter(llvm::StringMap<std::string> CompileOptions::*member) {
  return [=](CompileOptions &options, StringRef value) -> std::optional<std::string> {
    auto [name, output] = value.split('=');
    if (name.empty() || output.empty())
      return "NAME=OUTPUT";
    (options.*member)[name] = output.str();
    return std::nullopt;
  };
}

/// Given again, the flag adds one of several optimizers; the training phase reads them.
std::optional<std::string> setOptimizer(CompileOptions &options, StringRef value) {
  options.optimizer = options.hasOptimizer ? options.optimizer + ";" + value.str() : value.str();
  options.hasOptimizer = true;
  return std::nullopt;
}

/// NAME=N, or NAME,NAME=N,N: symbols that have the same extent, and each extent of a size.
std::optional<std::string> addBinding(CompileOptions &options, ArrayRef<StringRef> symbols, ArrayRef<StringRef> words) {
  Binding binding;
  for (StringRef word : words)
    if (word.getAsInteger(10, binding.extents.emplace_back()) || binding.extents.back() < 1)
      return "NAME=N with a positive N";
  if (words.empty() || is_contained(symbols, ""))
    return "NAME=N with a positive N";
  if (SmallSet<int64_t, 8>(binding.extents.begin(), binding.extents.end()).size() != words.size())
    return "NAME=N,N... with different extents";
  for (StringRef symbol : symbols) {
    for (Binding &earlier : options.bindings) // the last one counts
      erase(earlier.symbols, symbol.str());
    binding.symbols.push_back(symbol.str());
  }
  erase_if(options.bindings, [](const Binding &earlier) { return earlier.symbols.empty(); });
  options.bindings.push_back(std::move(binding));
  return std::nullopt;
}

/// Bindings with commas between: a name behind an extent begins another one, as in N=1,8,M,K=4.
std::optional<std::string> setBinding(CompileOptions &options, StringRef value) {
  SmallVector<StringRef> words, symbols, extents;
  value.split(words, ',');
  int64_t number;
  bool hasExtents = false;
  for (StringRef word : words) {
    auto [name, extent] = word.split('=');
    bool isName = word.contains('=') || !hasExtents || (!word.empty() && word.getAsInteger(10, number));
    if (hasExtents && isName) {
      if (auto expected = addBinding(options, symbols, extents))
        return expected;
      symbols.clear(), extents.clear();
      hasExtents = false;
    }
    (isName ? symbols : extents).push_back(isName ? name : word);
    if (word.contains('=')) {
      extents.push_back(extent);
      hasExtents = true;
    }
  }
  return addBinding(options, symbols, extents);
}

std::optional<std::string> setMaxSteps(CompileOptions &options, StringRef value) {
  auto [name, steps] = value.rsplit('=');
  if (name.empty() || steps.getAsInteger(10, options.maxSteps[name]))
    return "NODE=N, a Loop node and the most steps that it takes";
  return std::nullopt;
}

std::optional<std::string> setClipNorm(CompileOptions &options, StringRef value) {
  if (value.getAsDouble(options.clipNorm) || !(options.clipNorm > 0.0) || !std::isfinite(options.clipNorm))
    return "a positive number";
  return std::nullopt;
}

std::optional<std::string> setEma(CompileOptions &options, StringRef value) {
  if (value.getAsDouble(options.ema) || !(options.ema > 0.0 && options.ema < 1.0))
    return "a number between 0 and 1";
  return std::nullopt;
}

std::optional<std::string> setMemoryBudget(CompileOptions &options, StringRef value) {
  static constexpr StringLiteral units = "KMG";
  auto [bytes, allowed] = value.split(',');
  options.budgetCodes = options.budgetChecks = false;
  options.budgetSlots.clear();
  SmallVector<StringRef> words;
  if (bytes.size() != value.size())
    allowed.split(words, ',');
  for (StringRef word : words) {
    StringRef type = word;
    options.budgetCodes |= word == "saved=f8" || word == "lossy";
    options.budgetChecks |= word == "check=parameter" || word == "lossy";
    if (word == "lossy")
      options.budgetSlots.assign(std::begin(kBudgetSlots), std::end(kBudgetSlots));
    else if (type.consume_front("slots=") && is_contained(kBudgetSlots, type))
      options.budgetSlots.push_back(type.str());
    else if (word != "saved=f8" && word != "check=parameter")
      return "BYTES, with ,check=parameter, ,saved=f8, ,slots=" + join(ArrayRef(kBudgetSlots), "|") +
             " or ,lossy for all of these, where bits may change";
  }
  value = bytes;
  size_t unit = value.empty() ? StringRef::npos : units.find(value.back());
  int64_t factor = unit == StringRef::npos ? 1 : int64_t(1) << (10 * (unit + 1)), count;
  StringRef digits = unit == StringRef::npos ? value : value.drop_back();
  if (digits.getAsInteger(10, count) || count < 1 || count > INT64_MAX / factor)
    return "a number of bytes, which may end in K, M or G (powers of 1024)";
  options.memoryBudget = count * factor;
  return std::nullopt;
}

std::optional<std::string> setAccumulate(CompileOptions &options, StringRef value) {
  if (value.getAsInteger(10, options.accumulate) || options.accumulate < 1)
    return "a positive whole number";
  return std::nullopt;
}

std::optional<std::string> setReplicas(CompileOptions &options, StringRef value) {
  if (!dist::parseReplicas(value))
    return "a whole number from 1 to " + std::to_string(dist::kMostReplicas) + ", or any";
  options.replicas = value.str();
  return std::nullopt;
}

std::optional<std::string> setReduceType(CompileOptions &options, StringRef value) {
  if (value != "f32" && value != "bf16")
    return "f32 or bf16";
  options.reduceType = value.str();
  return std::nullopt;
}

std::optional<std::string> addReport(CompileOptions &options, StringRef value) {
  if (!is_contained({"precision", "memory", "kernels"}, value.split('=').first))
    return "precision|memory|kernels, optionally =FILE";
  options.reports.push_back(value.str());
  options.countTraffic |= value.split('=').first == "kernels";
  return std::nullopt;
}

/// The products, and their form.
std::vector<Flag> productFlags() {
  using Options = CompileOptions;
  return {
      {"-o", "PATH", "folder of the library, or file of any other product (- is standard output)",
       text(&Options::output)},
      {"--name", "NAME", "name of the library (the input's stem)", text(&Options::name)},
      {"--emit", "KIND",
       "library (default), static, object, llvm, mlir; onnx: the training step that --optimizer or --loss asks for, "
       "else the model's own graph rewritten; products: a library that python -m mpt.measure times for ,measure of "
       "--policy",
       setEmit},
      {"--state", "FILE",
       "with --emit=onnx: the model's own file with the trained values of a saved state, nothing else changed",
       text(&Options::state)},
      {"--averaged", "", "with --state: the averages that --ema kept", toggle(&Options::averaged)},
      {"--inference-model", "FILE",
       "model file that a trainer's save_onnx copies, its tensors by name; the input otherwise",
       text(&Options::inferenceModel)},
      {"--onnx-form", "FORM",
       "training step as ONNX: joint (default; one graph of standard operators) or training-info (TrainingInfoProto)",
       choice(&Options::onnxForm, "joint|training-info")},
      {"--onnx-arithmetic", "HOW",
       "of a training step as ONNX: native (default), or wide, which computes bf16 in wider types between casts",
       choice(&Options::onnxArithmetic, "native|wide")},
      {"--onnx-state", "WHERE",
       "of a training step as ONNX: initializers (default), or inputs, which have what the step before made of them; "
       "their defaults are the values before the first step",
       choice(&Options::onnxState, "initializers|inputs")},
      {"--onnx-ops", "OPS",
       "of a training step as ONNX: all (default), or portable, without FP64, which few execution providers have",
       choice(&Options::onnxOps, "all|portable")},
  };
}

std::string namesOf(ArrayRef<Described> all) {
  return join(map_range(all, [](const Described &one) { return one.name.str(); }), ", ");
}

/// The arithmetic of the step.
std::vector<Flag> trainingFlags() {
  return {
      {"--loss", "LOSS",
       "loss to add: " + namesOf(describeLosses()) +
           ", with settings as in softmax-cross-entropy,ignore-index=-100 (--list-losses); several with "
           ",output=NAME[,weight=NUMBER] each (repeatable)",
       setLoss},
      {"--optimizer", "SPEC",
       namesOf(describeOptimizers()) + " with settings (--list-optimizers), as in "
                                       "adamw,lr=1e-3,weight-decay=0.01,schedule=cosine,warmup=100,steps=1000; several "
                                       "with ,params=REGEX at the end "
                                       "(repeatable)",
       setOptimizer},
  };
}

/// How a graph with gradients or new values as outputs is read.
std::vector<Flag> jointFlags() {
  using Options = CompileOptions;
  return {
      {"--backward", "WHOSE",
       "of a graph with gradients (P_grad) or new values (P_next) as outputs: file (default) takes its backward pass, "
       "own "
       "only its loss",
       choice(&Options::backward, "file|own")},
      {"--gradient", "NAME=OUTPUT", "the output that is the gradient of parameter NAME (repeatable)",
       roleSetter(&Options::gradients)},
      {"--next", "NAME=OUTPUT", "the output that is the new value of initializer NAME (repeatable)",
       roleSetter(&Options::next)},
      {"--seed", "NAME", "the value that the backward pass of the file starts from, where loss scaling enters",
       text(&Options::seed)},
      {"--checkpoint", "FILE",
       "values of the parameters of an ONNX Runtime training model: its checkpoint, or an .onnx",
       text(&Options::checkpoint)},
      {"--optimizer-model", "FILE", "optimizer of an ONNX Runtime training model", text(&Options::optimizerModel)},
      {"--eval-model", "FILE",
       "graph over the same parameters that function evaluate computes, such as ONNX Runtime's evaluation model",
       text(&Options::evalModel)},
  };
}

/// Which types it computes in.
std::vector<Flag> precisionFlags() {
  using Options = CompileOptions;
  return {
      {"--policy", "POLICY",
       "built-in policy (fp32): " + llvm::join(builtinPolicies(), ", ") +
           "; or a policy file, or auto[,base=POLICY][,budget=X] from measured --ranges; then ,measure=FILE for 8-bit "
           "GEMMs "
           "where they were measured to be faster",
       text(&Options::policy)},
      {"--placement", "HOW", "", // of scripts that said the default
       [](Options &, StringRef value) {
         return value == "cut" ? std::nullopt : std::optional<std::string>("cut, the placement there is,");
       }},
      {"--keep-f32", "REGEX", "nodes whose names match stay FP32", pattern(&Options::keepF32)},
      {"--keep-narrow", "REGEX", "nodes whose names match are narrowed whatever the policy says",
       pattern(&Options::keepNarrow)},
      {"--rule", "RULE",
       "rule as in a policy file, which beats the policy's (repeatable), as in 'op \"mpt.tanh\" -> wide'",
       [](Options &options, StringRef value) -> std::optional<std::string> {
         options.rules.push_back(value.str());
         return std::nullopt;
       }},
      {"--loss-scale", "SCALE",
       "none, a number, or dynamic with settings, as in dynamic,init=1024,interval=500; check=parameter behind it or "
       "alone "
       "lets a step skip parameters one by one",
       text(&Options::lossScale)},
      {"--slots", "TYPE",
       "type that optimizer slots are stored in: f32, f16 (first moments alone) or bf16 (all), rounded stochastically; "
       "i8 or f8 (e4m3): 8-bit codes with a scale a block of 256, in tensors of 4,096 elements and more",
       choice(&Options::slots, "f32|f16|bf16|i8|f8")},
      {"--saved", "TYPE",
       "type in which activations wait for the backward pass: f8, 8-bit codes (e4m3) with a scale a row; or storage, "
       "their own. A rule 'saved \"REGEX\" -> narrow' or '-> storage' decides for nodes",
       choice(&Options::saved, "f8|storage")},
      {"--masters", "HOW",
       "copied: a narrow copy beside each FP32 parameter; packed: none, GEMMs round while they pack (the default for "
       "large parameters on the CPU)",
       choice(&Options::masters, "copied|packed")},
  };
}

/// The trained part of the model, and its cost.
std::vector<Flag> modelFlags() {
  using Options = CompileOptions;
  return {
      {"--max-steps", "NODE=N",
       "compile at most N steps of a Loop whose number of steps is computed at run time; one that takes more makes NaN "
       "(repeatable)",
       setMaxSteps},
      {"--clip-norm", "NORM", "clip gradients to this global L2 norm", setClipNorm},
      {"--ema", "DECAY",
       "keep averages of the parameters, DECAY of the old one and the rest of the new parameter a step", setEma},
      {"--accumulate", "N", "sum the gradients of N micro-steps before an update", setAccumulate},
      {"--replicas", "V",
       "a global step takes V batches, divided over processes: the same bits on any number of them; any: one batch a "
       "process",
       setReplicas},
      {"--shard-optimizer", "",
       "with --replicas: masters and slots are divided over the replicas, so that a process has those of its own alone",
       toggle(&Options::shardOptimizer)},
      {"--sync-batch-norm", "",
       "with --replicas: batch norms take the statistics of all replicas' rows, not those of their own replica",
       toggle(&Options::syncBatchNorm)},
      {"--reduce-type", "TYPE",
       "with --replicas: type of a replica's gradients when they travel: f32 (the default) or bf16; sums are f32",
       setReduceType},
      {"--shared-inputs", "REGEX", "with --replicas: inputs whose names match are not divided over replicas",
       pattern(&Options::sharedInputs)},
      {"--freeze", "REGEX", "parameters whose names match are not trained", pattern(&Options::freeze)},
      {"--train", "REGEX", "float initializers whose names match are parameters, whatever their use",
       pattern(&Options::train)},
      {"--tie", "REGEX",
       "biases, scales and matrices that an exporter has merged, as their first values were equal: those whose names "
       "match stay one tensor",
       pattern(&Options::tie)},
      {"--batch-norm", "HOW",
       "of batch normalizations in inference form: frozen (default), or train as in training form",
       choice(&Options::batchNorm, "train|frozen")},
      {"--bind", "NAME=N",
       "extent of a symbolic dimension (repeatable, or NAME=N,NAME=N); N,N... makes a library of all these sizes, "
       "NAME,NAME are of one extent",
       setBinding},
      {"--batch-invariant", "",
       "a row's results have the same bits whatever its batch, threads and processes, also in mpt-run",
       toggle(&Options::batchInvariant)},
      {"--no-dropout", "", "remove dropout from the training step", toggle(&Options::noDropout)},
      {"--forward-only", "", "no loss, backward or optimizer", toggle(&Options::forwardOnly)},
      {"--memory-budget", "BYTES",
       "most that training's state and scratch may take (or nK, nM, nG): rematerializes to fit, which changes no bit; "
       "where that is not enough, ,check=parameter lets updates follow their gradients, ,saved=f8 activations wait in "
       "8 bits, ,slots=bf16|i8|f8 optimizer states, and ,lossy allows all of these",
       setMemoryBudget},
  };
}

/// Names of targets, the default one first.
SmallVector<std::string> targetNames() {
  return map_to_vector(target::allTargets(), [](auto &target) { return target->name().str(); });
}

std::optional<std::string> setTarget(CompileOptions &options, StringRef value) {
  options.target = target::createTarget(value);
  if (value.empty() || !options.target)
    return join(targetNames(), "|");
  return std::nullopt;
}

/// The target of the code, and the target's own flags.
std::vector<Flag> targetFlags() {
  SmallVector<std::string> names = targetNames();
  names.front() += " (default)";
  std::vector<Flag> flags = {{"--target", "TARGET", join(names, ", "), setTarget}};
  for (const std::unique_ptr<target::Target> &target : target::allTargets())
    for (const target::TargetFlag &flag : target->flags())
      flags.push_back({flag.name, flag.value, ("with --target=" + target->name() + ": " + flag.text).str(),
                       [name = flag.name](CompileOptions &options, StringRef value) -> std::optional<std::string> {
                         options.targetFlags.emplace_back(name.str(), value.str());
                         return std::nullopt;
                       }});
  return flags;
}

/// Which phases run, and their reports.
std::vector<Flag> runFlags() {
  using Options = CompileOptions;
  return {
      {"--from", "PHASE", "first phase to run on an .mlir input", choice(&Options::from, phaseNames())},
      {"--to", "PHASE", "last phase to run; the module is printed", choice(&Options::to, phaseNames())},
      {"--report", "KIND",
       "precision, memory or kernels, to standard output or =FILE (.json; precision also .html; repeatable)",
       addReport},
      {"--ranges", "FILE",
       "ranges that mpt-run --calibrate measured: types under --policy=auto; under others what leaves a type's range "
       "stays FP32; shown in the precision report",
       text(&Options::ranges)},
      {"--data", "FOLDER",
       "measure the ranges first: safetensors files with the inputs of one step each, in the order of their names",
       text(&Options::data)},
      {"--dry-run", "", "run the phases and print the reports, write no product", toggle(&Options::dryRun)},
      {"--debug-nonfinite", "",
       "the library checks every value it computes: a step that is skipped, or gives what is not finite, fails with "
       "the node",
       toggle(&Options::debugNonfinite)},
      {"--debug-only", "PASSES", "say why these passes refused rewrites, as in fusion-form,memory-plan",
       [](Options &, StringRef value) -> std::optional<std::string> {
         Error unknown = debugOnly(value);
         if (!unknown)
           return std::nullopt;
         consumeError(std::move(unknown));
         return "names of passes, as in fusion-form,memory-plan (mpt-opt --help-passes lists them),";
       }},
      {"--timing", "", "print the time that each pass took", toggle(&Options::timing)},
      {"--quiet", "", "no progress on standard error", toggle(&Options::quiet)},
  };
}

constexpr FlagGroup groups[] = {
    {"product", "what is written", "mpt-opt model.onnx --policy=amp-bf16 --emit=onnx -o model.bf16.onnx", productFlags},
    {"training", "what a step computes",
     "mpt-opt model.onnx --loss=softmax-cross-entropy --optimizer=adamw,lr=1e-3 -o lib", trainingFlags},
    {"joint", "files that bring their training", "mpt-opt joint.onnx --gradient=w=w_gradient --policy=amp-f16 -o lib",
     jointFlags},
    {"precision", "types", "mpt-opt model.onnx --loss=mse --policy=amp-f16 --keep-f32='/head.*' -o lib",
     precisionFlags},
    {"model", "shapes, parameters and costs", "mpt-opt model.onnx --loss=mse --bind=N=32,7 --freeze='stem.*' -o lib",
     modelFlags},
    {"target", "machines", "mpt-opt model.onnx --loss=mse --target=cuda --arch=sm_90 -o lib", targetFlags},
    {"run", "phases and reports", "mpt-opt model.onnx --loss=mse --policy=amp-f16 --report=precision=page.html -o lib",
     runFlags},
};

} // namespace

StringRef mpt::phaseNames() {
  static const std::string names = [] {
    std::string joined;
    for (const Phase &phase : compilerPhases())
      joined += (phase.name + "|").str();
    return joined + "target"; // which emits behind them
  }();
  return names;
}

ArrayRef<FlagGroup> mpt::flagGroups() { return groups; }

const std::vector<Flag> &mpt::flagTable() {
  static const std::vector<Flag> flags = [] {
    registerTargets();
    std::vector<Flag> all;
    for (const FlagGroup &group : groups)
      append_range(all, group.flags());
    return all;
  }();
  return flags;
}
