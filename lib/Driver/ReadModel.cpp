// SPDX-License-Identifier: Apache-2.0
// A compilation reads its model, and says once what it found there: parts of training, and what trains.
#include "Compilation.h"

#include "Trained.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;

LogicalResult Compilation::read(const Size &size) {
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
    return fail("'" + path +
                "' is a training step already: expected no loss, optimizer, policy, loss scale, slots, rules or names "
                "of what trains");
  return success();
}

void Compilation::sayForm() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form)
    return;
  if (form->used.empty())
    form->used = usedOf(*form);
  note(*module, *form);
  say(form->text());
}

LogicalResult Compilation::sayTrained() {
  Trained trained = trainedIn(*module);
  if (options.forwardOnly || !makesStep())
    return success();
  say(trained.line);
  if (trained.tensors > 0)
    return success();
  return fail("expected parameters to train in '" + options.input + "', found none (" + trained.line +
              "): name them with --train=REGEX, or give --forward-only [mpt-nothing-trains]");
}

bool Compilation::makesStep() {
  return options.trains || hasAttr<MPTDialect::StepAttrHelper>(*module) || (*module)->hasAttr(onnx::kTrainingRoles);
}

void Compilation::say(const std::string &text) {
  if (said.insert(text).second)
    progress(text);
}

std::string Compilation::usedOf(const TrainingForm &form) {
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

void Compilation::sayRecognized() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form || form->recognized.empty())
    return;
  auto [found, all] = StringRef(form->recognized).split(" of ");
  if (found != all)
    say(form->form + ": gradients of " + form->recognized +
        " operations were recognized; --debug-only=import-recognize-gradients names the others");
}

LogicalResult Compilation::takeForm() {
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

LogicalResult Compilation::countAlgorithms() {
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

std::string Compilation::flagOfSteps() const {
  for (auto [flag, value] : {std::pair("--train=", &options.train), std::pair("--freeze=", &options.freeze),
                             std::pair("--tie=", &options.tie), std::pair("--batch-norm=", &options.batchNorm)})
    if (!value->empty())
      return flag + *value;
  return options.flagOfStepFile();
}

void Compilation::sayNodesForm() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form)
    return;
  form->used = "the nodes as they are";
  progress(form->text());
  if (options.policy != "fp32")
    log << "warning: the backward pass of '" << options.input << "' is rewritten node by node, without masters or a "
        << "loss scale; --backward=file writes the training step, which has what " << options.policy << " asks for\n";
}
