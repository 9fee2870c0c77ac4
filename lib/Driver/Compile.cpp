// SPDX-License-Identifier: Apache-2.0
// The compilation driver: contexts, entry points, and phase after phase, under a budget as often as it takes.
#include "mpt/Driver/Compile.h"

#include "FoldedNorms.h"
#include "ReadModel.h"
#include "SavedTensors.h"
#include "WriteProduct.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Dialect/MPT/Sizes.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Policy/PolicyDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Driver/MeasuredRanges.h"
#include "mpt/Driver/Questions.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Export/Export.h"
#include "mpt/Memory/Report.h"
#include "mpt/Precision/Policy.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Signals.h"

#include <csignal>
#include <new>
#include <unistd.h>

using namespace mlir;
using namespace mpt;
using llvm::Expected;

/// Prints diagnostics as `error: at node '/fc1/Gemm': text`, the node's name being the location.
static void printDiagnostic(raw_ostream &log, Diagnostic &diagnostic) {
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
static bool rewritesNodes(const CompileOptions &options) {
  return options.emit == EmitKind::ONNX && !options.trains && !StringRef(options.input).ends_with(".mlir") &&
         !holdsSteps(options.input) && !llvm::sys::fs::is_directory(options.input);
}

namespace {

class Compilation {
public:
  Compilation(const CompileOptions &options, MLIRContext &context, raw_ostream &out, raw_ostream &log)
      : options(options), pipeline(options), context(context), messages(options, log),
        reader(messages, pipeline, module, context), writer(messages, reader, module, searched, context, out) {
    if (options.products) // the output is a table
      pipeline.policy = PolicyName::of(options.policy).name;
  }

  /// The whole compilation, up to the product.
  LogicalResult run();
  /// Reads the model and runs the phases that the options ask for; reports are written on the way.
  LogicalResult runPhases();
  LogicalResult reportKernels() { return writer.reportKernels(); }
  OwningOpRef<ModuleOp> takeModule() { return std::move(module); }

private:
  /// Runs the first phases size by size and joins their results in one module.
  LogicalResult joinSizes(ArrayRef<Size> sizes, ArrayRef<Phase> each);
  LogicalResult runPhases(ArrayRef<Phase> phases);
  /// False before the phase of --from.
  bool started(StringRef phase);
  LogicalResult runPhase(const Phase &phase, const PipelineOptions &wishes);
  static ArrayRef<Phase> phasesFrom(StringRef first);
  /// Phases whose options a budget decides; they run as often as it takes.
  bool fitsBudget(const Phase &phase) const;
  /// Decides the options of the phases from `first` on so that the plan is within the budget, and keeps their results.
  LogicalResult planWithin(StringRef first);
  /// The phases from `first` to the plan. The error has the diagnostics.
  Expected<MemoryPlan> planFrom(StringRef first, ModuleOp source, const PipelineOptions &wishes);
  /// Takes @gradients, of every size, out of the result of phase fusion: no call of the library then needs more than
  /// the budget.
  void leaveOutGradients(ModuleOp fused, int64_t bytes);
  /// Times of one target say nothing of another, and not every target orders its sums.
  LogicalResult checkTarget();
  /// The model's own graph with the policy's types, node by node.
  LogicalResult rewriteNodes();

  const CompileOptions &options;
  PipelineOptions pipeline; ///< with the module's own settings
  MLIRContext &context;
  OwningOpRef<ModuleOp> module;
  std::optional<BudgetSearch> searched;           ///< under --memory-budget
  llvm::StringMap<OwningOpRef<ModuleOp>> planned; ///< results of phases that the search has run
  bool reached = false;
  Messages messages;
  ModelReader reader;
  ProductWriter writer;
};

} // namespace

LogicalResult Compilation::run() {
  bool steps = !options.forwardOnly && !rewritesNodes(options);
  if (!steps && !options.lossScale.empty() && options.lossScale != "none")
    return messages.fail(
        "expected a training step for --loss-scale=" + options.lossScale +
        ", got one pass through the graph: there is no loss to scale; name --loss and --optimizer [mpt-needs-step]");
  if (!options.state.empty()) {
    messages.progress("writing " + options.output);
    llvm::Error error = saveState(options, &context);
    return error ? messages.fail(llvm::toString(std::move(error))) : success();
  }
  if (rewritesNodes(options))
    return rewriteNodes();
  if (failed(runPhases()))
    return failure();
  LogicalResult written = options.dryRun ? success() : writer.write();
  // Kernels are assembled last.
  if (failed(writer.reportKernels()))
    return failure();
  return written;
}

LogicalResult Compilation::runPhases() {
  std::vector<Size> sizes = options.sizes();
  if (sizes.size() == 1)
    return failed(reader.read(sizes.front())) ? failure() : runPhases(compilerPhases());
  ArrayRef<Phase> decided = phasesFrom("precision");
  if (failed(joinSizes(sizes, compilerPhases().drop_back(decided.size()))))
    return failure();
  return options.to == "training" ? success() : runPhases(decided);
}

LogicalResult Compilation::joinSizes(ArrayRef<Size> sizes, ArrayRef<Phase> each) {
  OwningOpRef<ModuleOp> all;
  for (const Size &size : sizes) {
    if (failed(reader.read(size)) || failed(runPhases(each)))
      return failure();
    if (!all)
      all = ModuleOp::create(module->getLoc());
    module->setSymName(size.name);
    all->push_back(module.release());
  }
  module = std::move(all);
  messages.progress("joining " + Twine(sizes.size()) + " sizes");
  PassManager passes(&context);
  buildSizes(passes);
  return passes.run(*module);
}

LogicalResult Compilation::runPhases(ArrayRef<Phase> phases) {
  for (const Phase &phase : phases) {
    // A training step in a file stays as it is: differentiated, updated and typed.
    bool made = hasAttr<MPTDialect::StepAttrHelper>(*module) && (phase.name == "training" || phase.name == "precision");
    if (!started(phase.name))
      continue;
    if (made && phase.name == options.to)
      break;
    if (made)
      continue;
    if (phase.name == "training" && failed(reader.countAlgorithms()))
      return failure();
    if (fitsBudget(phase) && failed(planWithin(phase.name)))
      return failure();
    if (OwningOpRef<ModuleOp> &result = planned[phase.name])
      module = std::move(result);
    else if (failed(runPhase(phase, pipeline)))
      return failure();
    if (phase.name == "import") {
      reader.sayRecognized();
      if (reader.makesStep() && !options.forwardOnly && messages.isNew("norms"))
        warnFoldedNorms(*module);
    }
    if (failed(writer.report(phase.name)) || (phase.name == "precision" && failed(checkTarget())))
      return failure();
    // An ONNX file has the result of phase precision; later phases are for machines.
    if (phase.name == options.to || (options.emit == EmitKind::ONNX && phase.name == "precision"))
      break;
  }
  return success();
}

bool Compilation::started(StringRef phase) {
  if (phase == options.from)
    reached = true;
  return reached || options.from.empty();
}

LogicalResult Compilation::rewriteNodes() {
  if (options.output == "-" && !options.dryRun)
    return messages.fail("expected a file for the ONNX model; name it with -o");
  if (std::string flag = reader.flagOfSteps(); !flag.empty())
    return messages.fail(
        "expected a training step for " + flag +
        ", got a graph whose nodes are rewritten; name --loss and --optimizer, or --backward=file where the "
        "file has a backward pass [mpt-needs-step]");
  messages.progress("importing " + options.input);
  FailureOr<OwningOpRef<ModuleOp>> imported = importNodes(options.input, options.name, &context);
  if (failed(imported))
    return failure();
  module = std::move(*imported);
  reader.sayNodesForm();
  messages.progress("phase precision");
  PassManager passes(&context);
  if (options.timing)
    passes.enableTiming();
  buildNodeRewriting(passes, options);
  if (failed(passes.run(*module)) || failed(writer.report("precision")))
    return failure();
  if (options.dryRun)
    return success();
  messages.progress("writing " + options.output);
  return exportNodes(*module, options.output);
}

LogicalResult Compilation::runPhase(const Phase &phase, const PipelineOptions &wishes) {
  messages.progress("phase " + phase.name);
  if (wishes.batchInvariant)
    orderSums(*module);
  PassManager passes(&context);
  if (options.timing)
    passes.enableTiming();
  phase.build(passes, wishes);
  return passes.run(*module);
}

ArrayRef<Phase> Compilation::phasesFrom(StringRef first) {
  return compilerPhases().drop_until([&](const Phase &phase) { return phase.name == first; });
}

bool Compilation::fitsBudget(const Phase &phase) const {
  return options.memoryBudget && !searched && is_contained({"precision", "distribution", "fusion"}, phase.name) &&
         (options.to.empty() || llvm::is_contained({"library", "buffers", "kernels", "memory", "target"}, options.to));
}

LogicalResult Compilation::planWithin(StringRef first) {
  OwningOpRef<ModuleOp> source = std::move(module);
  searched.emplace(options, pipeline, first == "precision",
                   [&](const PipelineOptions &wishes) { return planFrom(first, *source, wishes); });
  Expected<MemoryPlan> found = searched->run();
  if (!found) {
    messages.log << llvm::toString(found.takeError());
    return failure();
  }
  for (const std::string &message : found->messages)
    messages.log << message;
  pipeline = found->options;
  for (auto &[name, result] : found->phases)
    planned[name] = std::move(result);
  module = std::move(source);
  if (found->gradients.bytes > options.memoryBudget)
    leaveOutGradients(*planned["fusion"], found->gradients.bytes);
  return success();
}

Expected<MemoryPlan> Compilation::planFrom(StringRef first, ModuleOp source, const PipelineOptions &wishes) {
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
    messages.progress("needs " + Twine(plan.peak.bytes) + " bytes, more than --memory-budget");
  return plan;
}

void Compilation::leaveOutGradients(ModuleOp fused, int64_t bytes) {
  for (auto function : llvm::make_early_inc_range(fused.getOps<func::FuncOp>()))
    if (nameInFirstSize(function.getSymName()) == "gradients")
      function.erase();
  for (StringRef later : {"library", "buffers", "kernels", "memory"})
    planned.erase(later);
  messages.log << "warning: 'gradients', which hands all gradients out at once, needs " << bytes
               << " bytes, more than --memory-budget: it is left out of the library\n";
}

LogicalResult Compilation::checkTarget() {
  PrecisionSettings settings = PrecisionSettings::of(*module);
  if (options.emit == EmitKind::ONNX && llvm::any_of(settings.savedNodes, [](const SavedRule &r) { return r.coded; }))
    return messages.fail("expected a library for activations that wait in 8 bits (--saved=f8 and rules 'saved'), got "
                         "--emit=onnx: whatever runs the file decides what waits");
  std::string timed = settings.timedTarget;
  std::shared_ptr<const target::Target> target = options.target ? options.target : target::createTarget("");
  if (options.batchInvariant && !target->capabilities().orderedSums)
    return messages.fail("expected --target=cpu for --batch-invariant, got " + target->name() +
                         ", whose libraries choose the order of sums");
  if (timed.empty() || options.emit == EmitKind::ONNX || timed == target->name())
    return success();
  return messages.fail("expected products that were measured on target " + target->name() + ", got a table of target " +
                       timed);
}

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
