// SPDX-License-Identifier: Apache-2.0
// The compilation driver: reads the input, runs phase after phase, writes the product.
#include "mpt/Driver/Compile.h"

#include "FoldedNorms.h"
#include "MemoryBudget.h"
#include "OptimizerGroups.h"
#include "SavedTensors.h"
#include "Trained.h"

#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Dialect/MPT/Sizes.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"
#include "mpt/Dialect/Policy/PolicyDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Driver/MeasuredRanges.h"
#include "mpt/Driver/Questions.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Export/Export.h"
#include "mpt/Import/Import.h"
#include "mpt/Import/TrainingForm.h"
#include "mpt/Memory/KernelCode.h"
#include "mpt/Memory/KernelReport.h"
#include "mpt/Memory/Report.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Support/Files.h"
#include "passes/Pipelines.h"
#include "passes/precision/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/SourceMgr.h"

#include <csignal>
#include <new>
#include <unistd.h>

using namespace mlir;
using namespace mpt;
using llvm::Expected;

namespace {

/// Prints diagnostics as `error: at node '/fc1/Gemm': text`, the node's name being the location.
void printDiagnostic(raw_ostream &log, Diagnostic &diagnostic) {
  static constexpr StringLiteral kinds[] = {"note", "warning", "error", "remark"};
  log << kinds[static_cast<size_t>(diagnostic.getSeverity())] << ": ";
  Location loc = diagnostic.getLocation();
  if (auto name = dyn_cast<NameLoc>(loc))
    log << "at node '" << name.getName().getValue() << "': ";
  else if (auto file = dyn_cast<FileLineColLoc>(loc))
    log << file.getFilename().getValue() << ":" << file.getLine() << ":" << file.getColumn() << ": ";
  log << diagnostic << "\n";
  for (Diagnostic &note : diagnostic.getNotes())
    printDiagnostic(log, note);
}

/// The graph that comes in leaves node by node: none of the dialects that code is generated through is needed.
bool rewritesNodes(const CompileOptions &options) {
  return options.emit == EmitKind::ONNX && !options.trains && !StringRef(options.input).ends_with(".mlir") &&
         !holdsSteps(options.input) && !llvm::sys::fs::is_directory(options.input);
}

class Compilation {
public:
  Compilation(const CompileOptions &options, MLIRContext &context, raw_ostream &out, raw_ostream &log)
      : options(options), pipeline(options), out(out), log(log), context(context) {
    if (options.products) // the output is a table
      pipeline.policy = PolicyName::of(options.policy).name;
  }

  LogicalResult run() {
    bool steps = !options.forwardOnly && !rewritesNodes(options);
    if (!steps && !options.lossScale.empty() && options.lossScale != "none")
      return fail(
          "expected a training step for --loss-scale=" + options.lossScale +
          ", got one pass through the graph: there is no loss to scale; name --loss and --optimizer [mpt-needs-step]");
    if (!options.state.empty()) {
      progress("writing " + options.output);
      llvm::Error error = saveState(options, &context);
      return error ? fail(llvm::toString(std::move(error))) : success();
    }
    if (rewritesNodes(options))
      return rewriteNodes();
    if (failed(runPhases()))
      return failure();
    LogicalResult written = options.dryRun ? success() : write();
    // Kernels are assembled last.
    if (failed(reportKernels()))
      return failure();
    return written;
  }

  /// Writes the reports of kernels that were asked for, with the figures of their code.
  LogicalResult reportKernels() {
    if (kernelFiles.empty())
      return success();
    memory::addKernelCode(kernels, kernelCode);
    for (StringRef file : kernelFiles) {
      auto print = [&](raw_ostream &os) {
        if (file.ends_with(".json"))
          os << llvm::formatv("{0:2}", llvm::json::Value(llvm::json::Object(kernels))) << "\n";
        else
          memory::printKernelReport(kernels, os);
      };
      if (llvm::Error error = writeFile(file.empty() ? "-" : file, print))
        return fail(llvm::toString(std::move(error)));
    }
    return success();
  }

  LogicalResult runPhases() {
    std::vector<Size> sizes = options.sizes();
    if (sizes.size() == 1)
      return failed(read(sizes.front())) ? failure() : runPhases(compilerPhases());
    ArrayRef<Phase> decided = phasesFrom("precision");
    if (failed(joinSizes(sizes, compilerPhases().drop_back(decided.size()))))
      return failure();
    return options.to == "training" ? success() : runPhases(decided);
  }

  OwningOpRef<ModuleOp> takeModule() { return std::move(module); }

private:
  /// Runs the first phases size by size and joins their results in one module.
  LogicalResult joinSizes(ArrayRef<Size> sizes, ArrayRef<Phase> each) {
    OwningOpRef<ModuleOp> all;
    for (const Size &size : sizes) {
      if (failed(read(size)) || failed(runPhases(each)))
        return failure();
      if (!all)
        all = ModuleOp::create(module->getLoc());
      module->setSymName(size.name);
      all->push_back(module.release());
    }
    module = std::move(all);
    progress("joining " + Twine(sizes.size()) + " sizes");
    PassManager passes(&context);
    buildSizes(passes);
    return passes.run(*module);
  }

  LogicalResult runPhases(ArrayRef<Phase> phases) {
    for (const Phase &phase : phases) {
      // A training step in a file stays as it is: differentiated, updated and typed.
      bool made =
          hasAttr<MPTDialect::StepAttrHelper>(*module) && (phase.name == "training" || phase.name == "precision");
      if (!started(phase.name))
        continue;
      if (made && phase.name == options.to)
        break;
      if (made)
        continue;
      if (phase.name == "training" && failed(countAlgorithms()))
        return failure();
      if (fitsBudget(phase) && failed(planWithin(phase.name)))
        return failure();
      if (OwningOpRef<ModuleOp> &result = planned[phase.name])
        module = std::move(result);
      else if (failed(runPhase(phase, pipeline)))
        return failure();
      if (phase.name == "import") {
        sayRecognized();
        if (makesStep() && !options.forwardOnly && said.insert("norms").second)
          warnFoldedNorms(*module);
      }
      if (failed(report(phase.name)) || (phase.name == "precision" && failed(checkTarget())))
        return failure();
      // An ONNX file has the result of phase precision; later phases are for machines.
      if (phase.name == options.to || (options.emit == EmitKind::ONNX && phase.name == "precision"))
        break;
    }
    return success();
  }

  bool started(StringRef phase) {
    if (phase == options.from)
      reached = true;
    return reached || options.from.empty();
  }

  LogicalResult fail(const Twine &message) {
    log << "error: " << message << "\n";
    return failure();
  }

  void progress(const Twine &message) {
    if (!options.quiet)
      log << "mpt-opt: " << message << "\n";
  }

  LogicalResult read(const Size &size) {
    StringRef path = options.input;
    if (path.ends_with(".mlir")) {
      module = parseSourceFile<ModuleOp>(path, &context);
      return success(static_cast<bool>(module));
    }
    progress("importing " + path + (size.name.empty() ? "" : " with " + size.name));
    ImportOptions import;
    import.name = options.name;
    import.bindings = size.bindings;
    if (!options.train.empty())
      import.train.push_back(options.train);
    if (!options.freeze.empty())
      import.freeze.push_back(options.freeze);
    import.tie = options.tie;
    import.batchNorm = options.batchNorm;
    import.backward = options.backward;
    import.gradients = options.gradients;
    import.next = options.next;
    import.seed = options.seed;
    import.maxSteps = options.maxSteps;
    import.checkpoint = options.checkpoint;
    import.optimizerModel = options.optimizerModel;
    import.evalModel = options.evalModel;
    import.trains = options.trains && !options.forwardOnly;
    // Whoever names a loss wants another step than the file's.
    import.ignoresAlgorithms = options.hasLoss || options.forwardOnly;
    FailureOr<OwningOpRef<ModuleOp>> imported = importWithSites(path, import, &context, &sites);
    if (failed(imported))
      return failure();
    module = std::move(*imported);
    sayForm();
    if (failed(takeForm()) || failed(sayTrained()))
      return failure();
    if (hasAttr<MPTDialect::StepAttrHelper>(*module) &&
        (options.trains || options.policy != "fp32" || !options.lossScale.empty() || !options.slots.empty() ||
         !options.train.empty() || !options.freeze.empty() || !options.keepF32.empty() || !options.keepNarrow.empty() ||
         !options.rules.empty()))
      return fail(
          "'" + path +
          "' is a training step already: expected no loss, optimizer, policy, loss scale, slots, rules or names "
          "of what trains");
    return success();
  }

  /// Says which parts of training the file holds, and which of them are used.
  void sayForm() {
    std::optional<TrainingForm> form = notedForm(*module);
    if (!form)
      return;
    if (form->used.empty())
      form->used = usedOf(*form);
    note(*module, *form);
    say(form->text());
  }

  /// Says which parameters train and which are held. A step that trains nothing is a mistake.
  LogicalResult sayTrained() {
    Trained trained = trainedIn(*module);
    if (options.forwardOnly || !makesStep())
      return success();
    say(trained.line);
    if (trained.tensors > 0)
      return success();
    return fail("expected parameters to train in '" + options.input + "', found none (" + trained.line +
                "): name them with --train=REGEX, or give --forward-only [mpt-nothing-trains]");
  }

  /// Where the compilation has a training step, made here or brought by the file.
  bool makesStep() {
    return options.trains || hasAttr<MPTDialect::StepAttrHelper>(*module) || (*module)->hasAttr(onnx::kTrainingRoles);
  }

  /// Says `text` once: sizes are found in the same file.
  void say(const std::string &text) {
    if (said.insert(text).second)
      progress(text);
  }

  /// The parts of the file's training that the step has, and the sources of the rest.
  std::string usedOf(const TrainingForm &form) {
    auto roles = (*module)->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
    if (options.forwardOnly)
      return "nothing: --forward-only asks for the graph alone";
    if (options.hasLoss && !roles)
      return "nothing: --loss asks for another step";
    SmallVector<std::string> others;
    if (auto backward = roles ? roles.getAs<StringAttr>("backward") : StringAttr(); backward && backward == "derived")
      others.push_back("the backward pass, which is made anew");
    if (options.hasOptimizer && !form.optimizer.empty())
      others.push_back("the optimizer, which is --optimizer=" + options.optimizer);
    return others.empty() ? "all" : "all but " + llvm::join(others, ", and ");
  }

  /// Arithmetic that stays as the file wrote it has other precision classes than the operation would have.
  void sayRecognized() {
    std::optional<TrainingForm> form = notedForm(*module);
    if (!form || form->recognized.empty())
      return;
    auto [found, all] = StringRef(form->recognized).split(" of ");
    if (found != all)
      say(form->form + ": gradients of " + form->recognized +
          " operations were recognized; --debug-only=import-recognize-gradients names the others");
  }

  /// A joint graph has its loss, and an optimizer where the user names none.
  LogicalResult takeForm() {
    auto training = (*module)->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
    if (!training)
      return success();
    if (options.hasLoss && options.loss != "none")
      return fail("'" + options.input + "' has a loss: expected no --loss [mpt-second-loss]");
    auto optimizer = training.getAs<StringAttr>("optimizer");
    if (options.hasOptimizer)
      return success();
    if (optimizer)
      pipeline.optimizer = optimizer.getValue().str();
    else if (training.contains("updates"))
      pipeline.optimizer.clear();
    if (auto norm = training.getAs<FloatAttr>("clip_norm"); norm && options.clipNorm == 0.0)
      pipeline.clipNorm = norm.getValueAsDouble();
    if (pipeline.optimizer.empty() && options.clipNorm > 0.0)
      return fail("--clip-norm needs --optimizer: the file updates with operators of its own");
    return success();
  }

  /// The training phase makes steps of the file's algorithms where it brings some.
  LogicalResult countAlgorithms() {
    pipeline.ownOptimizer = options.hasOptimizer;
    pipeline.algorithms = llvm::count_if(module->getOps<func::FuncOp>(), [](func::FuncOp function) {
      return function.getSymName().starts_with("algorithm.");
    });
    if (pipeline.algorithms > 1 && options.emit == EmitKind::ONNX)
      return fail("expected --emit=library for the " + Twine(pipeline.algorithms) + " algorithms of '" + options.input +
                  "', got --emit=onnx: a file holds one step; in a library each is a function");
    if (pipeline.algorithms > 1 && options.replicas != "1")
      return fail("expected --replicas=1 for " + Twine(pipeline.algorithms) + " algorithms, got " + options.replicas +
                  ": replicas share the gradients of one step");
    if (pipeline.algorithms > 1 && options.accumulate > 1)
      return fail("expected --accumulate=1 for " + Twine(pipeline.algorithms) + " algorithms, got " +
                  Twine(options.accumulate));
    return success();
  }

  /// The model's own graph with the policy's types, node by node.
  LogicalResult rewriteNodes() {
    if (options.output == "-" && !options.dryRun)
      return fail("expected a file for the ONNX model; name it with -o");
    if (std::string flag = flagOfSteps(); !flag.empty())
      return fail("expected a training step for " + flag +
                  ", got a graph whose nodes are rewritten; name --loss and --optimizer, or --backward=file where the "
                  "file has a backward pass [mpt-needs-step]");
    progress("importing " + options.input);
    FailureOr<OwningOpRef<ModuleOp>> imported = importNodes(options.input, options.name, &context);
    if (failed(imported))
      return failure();
    module = std::move(*imported);
    sayNodesForm();
    progress("phase precision");
    PassManager passes(&context);
    if (options.timing)
      passes.enableTiming();
    buildNodeRewriting(passes, options);
    if (failed(passes.run(*module)) || failed(report("precision")))
      return failure();
    if (options.dryRun)
      return success();
    progress("writing " + options.output);
    return exportNodes(*module, options.output);
  }

  /// A flag given that is about training steps; empty where none is.
  std::string flagOfSteps() const {
    for (auto [flag, value] : {std::pair("--train=", &options.train), std::pair("--freeze=", &options.freeze),
                               std::pair("--tie=", &options.tie), std::pair("--batch-norm=", &options.batchNorm)})
      if (!value->empty())
        return flag + *value;
    return options.flagOfStepFile();
  }

  /// A backward pass among the nodes is rewritten like all others, and nothing scales its gradients.
  void sayNodesForm() {
    std::optional<TrainingForm> form = notedForm(*module);
    if (!form)
      return;
    form->used = "the nodes as they are";
    progress(form->text());
    if (options.policy != "fp32")
      log << "warning: the backward pass of '" << options.input << "' is rewritten node by node, without masters or a "
          << "loss scale; --backward=file writes the training step, which has what " << options.policy << " asks for\n";
  }

  LogicalResult runPhase(const Phase &phase, const PipelineOptions &wishes) {
    progress("phase " + phase.name);
    if (wishes.batchInvariant)
      orderSums(*module);
    PassManager passes(&context);
    if (options.timing)
      passes.enableTiming();
    phase.build(passes, wishes);
    return passes.run(*module);
  }

  static ArrayRef<Phase> phasesFrom(StringRef first) {
    return compilerPhases().drop_until([&](const Phase &phase) { return phase.name == first; });
  }

  /// Phases whose options a budget decides; they run as often as it takes.
  bool fitsBudget(const Phase &phase) const {
    return options.memoryBudget && !searched && is_contained({"precision", "distribution", "fusion"}, phase.name) &&
           (options.to.empty() || llvm::is_contained({"library", "memory", "target"}, options.to));
  }

  /// Decides the options of the phases from `first` on so that the plan is within the budget, and keeps their results.
  LogicalResult planWithin(StringRef first) {
    OwningOpRef<ModuleOp> source = std::move(module);
    searched.emplace(options, pipeline, first == "precision",
                     [&](const PipelineOptions &wishes) { return planFrom(first, *source, wishes); });
    Expected<MemoryPlan> found = searched->run();
    if (!found) {
      log << llvm::toString(found.takeError());
      return failure();
    }
    for (const std::string &message : found->messages)
      log << message;
    pipeline = found->options;
    for (auto &[name, result] : found->phases)
      planned[name] = std::move(result);
    module = std::move(source);
    if (found->gradients.bytes > options.memoryBudget)
      leaveOutGradients(*planned["fusion"], found->gradients.bytes);
    return success();
  }

  /// The phases from `first` to the plan. The error has the diagnostics.
  Expected<MemoryPlan> planFrom(StringRef first, ModuleOp source, const PipelineOptions &wishes) {
    MemoryPlan plan;
    plan.options = wishes;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      llvm::raw_string_ostream text(plan.messages.emplace_back());
      printDiagnostic(text, diagnostic);
    });
    module = source.clone();
    for (const Phase &phase : phasesFrom(first)) {
      if (failed(runPhase(phase, wishes)))
        return llvm::createStringError(llvm::join(plan.messages, ""));
      for (auto function : module->getOps<func::FuncOp>())
        if (phase.name == "fusion" && nameInFirstSize(function.getSymName()) == "step") {
          StepCost cost = stepCost(function);
          plan.cost.moved += cost.moved;
          plan.cost.contractions += cost.contractions;
        }
      plan.phases.emplace_back(phase.name, module->clone());
    }
    llvm::json::Object report = memory::report(*module);
    plan.peak = memory::peakOf(report);
    plan.gradients = memory::gradientsPeakOf(report);
    if (plan.peak.bytes > options.memoryBudget)
      progress("needs " + Twine(plan.peak.bytes) + " bytes, more than --memory-budget");
    return plan;
  }

  /// Takes @gradients, of every size, out of the result of phase fusion: no call of the library then needs more than
  /// the budget.
  void leaveOutGradients(ModuleOp fused, int64_t bytes) {
    for (auto function : llvm::make_early_inc_range(fused.getOps<func::FuncOp>()))
      if (nameInFirstSize(function.getSymName()) == "gradients")
        function.erase();
    planned.erase("library");
    planned.erase("memory");
    log << "warning: 'gradients', which hands all gradients out at once, needs " << bytes
        << " bytes, more than --memory-budget: it is left out of the library\n";
  }

  /// Reports asked for that phase `phase` has made possible.
  LogicalResult report(StringRef phase) {
    for (StringRef wish : options.reports) {
      auto [kind, file] = wish.split('=');
      PassManager passes(&context);
      if (kind == "precision" && phase == "precision")
        passes.addPass(createReport({file.ends_with(".json")   ? "json"
                                     : file.ends_with(".html") ? "html"
                                                               : "text",
                                     file.empty() ? "-" : file.str(), options.ranges}));
      if (kind == "memory" && phase == "memory" && failed(reportMemory(file)))
        return failure();
      if (kind == "kernels" && phase == "memory") {
        std::shared_ptr<const target::Target> target = options.target ? options.target : target::createTarget("");
        kernels = memory::kernelReport(*module, target->capabilities().tensorCores);
        kernelFiles.push_back(file);
      }
      if (!passes.empty() && failed(passes.run(*module)))
        return failure();
    }
    return success();
  }

  LogicalResult reportMemory(StringRef file) {
    llvm::json::Object memory = memory::report(*module);
    if (searched)
      memory["budget"] = searched->report();
    auto print = [&](raw_ostream &os) { memory::writeReport(memory, file.ends_with(".json"), os); };
    if (llvm::Error error = writeFile(file.empty() ? "-" : file, print))
      return fail(llvm::toString(std::move(error)));
    return success();
  }

  /// Times of one target say nothing of another, and not every target orders its sums.
  LogicalResult checkTarget() {
    PrecisionSettings settings = PrecisionSettings::of(*module);
    if (options.emit == EmitKind::ONNX && llvm::any_of(settings.savedNodes, [](const SavedRule &r) { return r.coded; }))
      return fail("expected a library for activations that wait in 8 bits (--saved=f8 and rules 'saved'), got "
                  "--emit=onnx: whatever runs the file decides what waits");
    std::string timed = settings.timedTarget;
    std::shared_ptr<const target::Target> target = options.target ? options.target : target::createTarget("");
    if (options.batchInvariant && !target->capabilities().orderedSums)
      return fail("expected --target=cpu for --batch-invariant, got " + target->name() +
                  ", whose libraries choose the order of sums");
    if (timed.empty() || options.emit == EmitKind::ONNX || timed == target->name())
      return success();
    return fail("expected products that were measured on target " + target->name() + ", got a table of target " +
                timed);
  }

  /// Entries of the emitted manifest beside the tables: where the library comes from and how it trains.
  void describe() {
    Builder builder(&context);
    NamedAttrList entries(getAttr<MPTDialect::ManifestAttrHelper>(*module));
    entries.set("source", builder.getStringAttr(llvm::sys::path::filename(options.input)));
    entries.set("compiler", builder.getStringAttr(compilerVersion()));
    // The path of a table says nothing to readers of the manifest; its times are there.
    PolicyName policy = PolicyName::of(options.policy);
    entries.set("policy", builder.getStringAttr(policy.name + (policy.measures ? ",measure" : "")));
    if (DictionaryAttr measured = describeTimes())
      entries.set("measured", measured);
    entries.set("loss", builder.getStringAttr(options.loss));
    if (options.debugNonfinite)
      entries.set("debug_nonfinite", builder.getBoolAttr(true));
    if (llvm::any_of(module->getOps<func::FuncOp>(), hasAttr<dist::DistDialect::PhaseAttrHelper>))
      entries.set("replicas", describeReplicas());
    if (Attribute optimizer = getAttr<MPTDialect::OptimizerAttrHelper>(*module))
      entries.set("optimizer", withGroups(*module, optimizer));
    if (options.accumulate > 1)
      entries.set("accumulate", builder.getI64IntegerAttr(options.accumulate));
    setAttr<MPTDialect::ManifestAttrHelper>(*module, entries.getDictionary(&context));
  }

  /// The times that decided about 8-bit operands, and the device that they were measured on; null where none did.
  DictionaryAttr describeTimes() {
    Builder builder(&context);
    PrecisionSettings settings = PrecisionSettings::of(*module);
    auto summary = getAttr<MPTDialect::PolicyAttrHelper>(*module);
    if (settings.timedDevice.empty())
      return {};
    Attribute rows = summary.get("products");
    return builder.getDictionaryAttr({builder.getNamedAttr("device", builder.getStringAttr(settings.timedDevice)),
                                      builder.getNamedAttr("libraries", builder.getStringAttr(settings.timedLibraries)),
                                      builder.getNamedAttr("products", rows ? rows : builder.getArrayAttr({}))});
  }

  /// How many replicas a global step has (0: one a process), and which inputs hold rows for all of them.
  DictionaryAttr describeReplicas() {
    Builder builder(&context);
    llvm::SetVector<Attribute> names;
    for (auto function : module->getOps<func::FuncOp>())
      for (unsigned i = 0; i < function.getNumArguments(); ++i)
        if (getArgAttr<dist::DistDialect::SplitAttrHelper>(function, i))
          names.insert(getArgAttr<MPTDialect::NameAttrHelper>(function, i));
    const SmallVector<Attribute> split = names.takeVector();
    int64_t count = dist::replicasOf(*module).value_or(1);
    return builder.getDictionaryAttr(
        {builder.getNamedAttr("count", builder.getI64IntegerAttr(count == dist::kOneAProcess ? 0 : count)),
         builder.getNamedAttr("split", builder.getArrayAttr(split))});
  }

  /// The step (or, without training, the forward graph) as standard operators.
  LogicalResult writeOnnx() {
    if (options.output == "-")
      return fail("expected a file for the ONNX model; name it with -o");
    auto forward = module->lookupSymbol<func::FuncOp>("forward");
    if (std::string flag = flagOfSteps(); options.forwardOnly && !flag.empty())
      return fail("expected a training step for " + flag +
                  ", got the forward pass alone; name --loss and --optimizer [mpt-needs-step]");
    if (options.onnxForm != "joint" && options.onnxState == "inputs")
      return fail("expected --onnx-form=joint for --onnx-state=inputs, got " + options.onnxForm +
                  ", whose algorithm reads its state from the model's initializers");
    if (options.forwardOnly ? !forward : !module->lookupSymbol<func::FuncOp>("step"))
      return fail("expected a function to export, found none; --from may have skipped the training phase");
    progress("writing " + options.output);
    if (options.forwardOnly)
      return exportOnnx(*module, forward, options.output);
    StepFile file;
    file.form = options.onnxForm == "joint" ? StepForm::Joint : StepForm::TrainingInfo;
    file.widens = options.onnxArithmetic == "wide";
    file.portable = options.onnxOps == "portable";
    file.stateInputs = options.onnxState == "inputs";
    return exportStep(*module, file, options.output);
  }

  LogicalResult write() {
    if (options.emit == EmitKind::ONNX)
      return writeOnnx();
    if (options.emit == EmitKind::MLIR)
      return writeText([&](raw_ostream &os) {
        module->print(os, OpPrintingFlags().elideLargeResourceString().enableDebugInfo(false));
      });
    progress("writing " + options.output);
    describe();
    target::LibraryOptions library;
    library.outDir = options.output;
    library.name = options.name;
    library.kind = options.emit == EmitKind::Static   ? target::LibraryKind::Static
                   : options.emit == EmitKind::Object ? target::LibraryKind::Object
                                                      : target::LibraryKind::Shared;
    library.keepIR = options.emit == EmitKind::LLVM;
    library.debugNonfinite = options.debugNonfinite;
    library.kernelCode = &kernelCode;
    if (failed(options.target->emit(*module, library)))
      return failure();
    std::string form;
    if (failed(writeForm(form))) {
      llvm::sys::fs::remove(formName()); // of the library that was replaced
      return failure();
    }
    llvm::FileRemover unfinished(form);
    return placeForm(form);
  }

  /// Writes the template of the model's file beside the library, as `path`.
  LogicalResult writeForm(std::string &path) {
    ImportOptions artifacts;
    std::string model = trainingModelIn(options.input, artifacts);
    if (!options.inferenceModel.empty()) {
      llvm::Expected<TensorSites> other = sitesOf(model = options.inferenceModel);
      if (!other)
        return fail(llvm::toString(other.takeError()));
      sites = std::move(*other);
    }
    if (sites.empty() || options.emit == EmitKind::Products) // which trains nothing
      return success();
    SmallString<128> unique;
    std::error_code code = llvm::sys::fs::create_directories(options.output);
    if (!code)
      code = llvm::sys::fs::createUniqueFile(formName() + ".%%%%%%", unique);
    path = unique.str().str();
    if (code)
      return fail("cannot write '" + formName() + "': " + code.message());
    llvm::sys::RemoveFileOnSignal(path);
    if (llvm::Error error = writeTemplate(model, savedTensors(*module, sites), path)) {
      llvm::sys::fs::remove(path);
      return fail(llvm::toString(std::move(error)));
    }
    return success();
  }

  /// Gives the template its name, or removes one that an earlier library had.
  LogicalResult placeForm(const std::string &path) {
    std::error_code code = path.empty() ? llvm::sys::fs::remove(formName()) : llvm::sys::fs::rename(path, formName());
    if (code)
      return fail("cannot write '" + formName() + "': " + code.message());
    llvm::sys::DontRemoveFileOnSignal(path);
    return success();
  }

  std::string formName() const {
    SmallString<128> path(options.output);
    llvm::sys::path::append(path, options.name + ".template");
    return path.str().str();
  }

  LogicalResult writeText(llvm::function_ref<void(raw_ostream &)> print) {
    if (options.output == "-" && &out != &llvm::outs()) {
      print(out);
      return success();
    }
    if (llvm::Error error = writeFile(options.output, print))
      return fail(llvm::toString(std::move(error)));
    return success();
  }

  const CompileOptions &options;
  PipelineOptions pipeline; ///< with the module's own settings
  raw_ostream &out, &log;
  MLIRContext &context;
  OwningOpRef<ModuleOp> module;
  std::optional<BudgetSearch> searched;           ///< under --memory-budget
  llvm::StringMap<OwningOpRef<ModuleOp>> planned; ///< results of phases that the search has run
  bool reached = false;
  llvm::StringSet<> said; ///< of the file's form
  TensorSites sites;      ///< of states in the file
  // Of --report=kernels: the files, the counts, and the assembler's figures.
  SmallVector<StringRef> kernelFiles;
  llvm::json::Object kernels;
  memory::KernelCode kernelCode{{}, "no library was written, so that nothing was assembled"};
};

} // namespace

static void registerInto(MLIRContext &context, raw_ostream &log) {
  DialectRegistry registry;
  registerAll(registry);
  context.appendDialectRegistry(registry);
  context.getDiagEngine().registerHandler([&log](Diagnostic &diagnostic) { printDiagnostic(log, diagnostic); });
  // A diagnostic names the node; the function it is in may have thousands of lines.
  context.printOpOnDiagnostic(false);
}

void mpt::prepareContext(MLIRContext &context, raw_ostream &log) {
  registerInto(context, log);
  context.loadAllAvailableDialects();
}

/// A context for `options`. One function has nothing for a second thread to do, and locks cost time.
static std::unique_ptr<MLIRContext> makeContext(const CompileOptions &options, raw_ostream &log) {
  bool nodes = rewritesNodes(options);
  auto context =
      std::make_unique<MLIRContext>(nodes ? MLIRContext::Threading::DISABLED : MLIRContext::Threading::ENABLED);
  registerInto(*context, log);
  if (nodes)
    context
        ->loadDialect<onnx::ONNXDialect, MPTDialect, train::TrainDialect, policy::PolicyDialect, func::FuncDialect>();
  else
    context->loadAllAvailableDialects();
  return context;
}

StringRef mpt::compilerVersion() { return MPT_VERSION; }

std::string mpt::versionText() { return "mpt " MPT_VERSION " (LLVM " LLVM_VERSION_STRING ")\n"; }

LogicalResult mpt::compile(CompileOptions options, raw_ostream &out, raw_ostream &log) {
  if (failed(measureRanges(options, log)))
    return failure();
  std::unique_ptr<MLIRContext> context = makeContext(options, log);
  return Compilation(options, *context, out, log).run();
}

FailureOr<OwningOpRef<ModuleOp>> mpt::compileModule(const CompileOptions &options, MLIRContext &context,
                                                    raw_ostream &out, raw_ostream &log) {
  Compilation compilation(options, context, out, log);
  if (failed(compilation.runPhases()) || failed(compilation.reportKernels()))
    return failure();
  return compilation.takeModule();
}

/// For errors with no caller left: prints the reason, removes temporary files and ends the process without a core dump.
[[noreturn]] static void giveUp(StringRef reason) {
  for (StringRef part : {StringRef("error: "), reason, StringRef("\n")})
    if (write(STDERR_FILENO, part.data(), part.size()) < 0)
      break;
  llvm::sys::RunInterruptHandlers();
  _exit(1);
}

static void giveUpMemory() { giveUp("out of memory; compile on a machine with more, or bind smaller dimensions"); }

static void installGiveUp() {
  std::set_new_handler(giveUpMemory);
  std::signal(SIGXFSZ, SIG_IGN); // writes beyond a limit fail, for the linker too, instead of ending the process
  llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { giveUpMemory(); });
  llvm::install_fatal_error_handler([](void *, const char *reason, bool) { giveUp(reason); });
}

int mpt::compilerMain(ArrayRef<StringRef> words) {
  installGiveUp();
  if (std::optional<bool> answer = answered("mpt-opt", words))
    return *answer ? 0 : 1;
  llvm::Expected<CompileOptions> options = CompileOptions::parse(words);
  if (!options) {
    llvm::errs() << "mpt-opt: " << llvm::toString(options.takeError()) << "\n";
    return 1;
  }
  if (failed(measureRanges(*options, llvm::errs())))
    return 1;
  // The process ends here: taking a module of a million nodes apart first would take longer than making it.
  MLIRContext *context = makeContext(*options, llvm::errs()).release();
  auto *compilation = new Compilation(*options, *context, llvm::outs(), llvm::errs());
  int status = failed(compilation->run()) ? 1 : 0;
  llvm::outs().flush();
  llvm::errs().flush();
  _exit(status);
}
