// SPDX-License-Identifier: Apache-2.0
// A compilation reads its model, and says once what it found there: parts of training, and what trains.
#include "ReadModel.h"

#include "Trained.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;

LogicalResult ModelReader::read(const Size &size) {
  StringRef path = options.input;
  if (path.ends_with(".mlir")) {
    module = parseSourceFile<ModuleOp>(path, &context);
    return success(static_cast<bool>(module));
  }
  messages.progress("importing " + path + (size.name.empty() ? "" : " with " + size.name));
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
    return messages.fail(
        "'" + path +
        "' is a training step already: expected no loss, optimizer, policy, loss scale, slots, rules or names "
        "of what trains");
  return success();
}

void ModelReader::sayForm() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form)
    return;
  if (form->used.empty())
    form->used = usedOf(*form);
  note(*module, *form);
  messages.say(form->text());
}

LogicalResult ModelReader::sayTrained() {
  Trained trained = trainedIn(*module);
  if (options.forwardOnly || !makesStep())
    return success();
  messages.say(trained.line);
  if (trained.tensors > 0)
    return success();
  return messages.fail("expected parameters to train in '" + options.input + "', found none (" + trained.line +
                       "): name them with --train=REGEX, or give --forward-only [mpt-nothing-trains]");
}

bool ModelReader::makesStep() {
  return options.trains || hasAttr<MPTDialect::StepAttrHelper>(*module) || (*module)->hasAttr(onnx::kTrainingRoles);
}

std::string ModelReader::usedOf(const TrainingForm &form) {
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

void ModelReader::sayRecognized() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form || form->recognized.empty())
    return;
  auto [found, all] = StringRef(form->recognized).split(" of ");
  if (found != all)
    messages.say(form->form + ": gradients of " + form->recognized +
                 " operations were recognized; --debug-only=import-recognize-gradients names the others");
}

LogicalResult ModelReader::takeForm() {
  auto training = (*module)->getAttrOfType<DictionaryAttr>(onnx::kTrainingRoles);
  if (!training)
    return success();
  if (options.hasLoss && options.loss != "none")
    return messages.fail("'" + options.input + "' has a loss: expected no --loss [mpt-second-loss]");
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
    return messages.fail("--clip-norm needs --optimizer: the file updates with operators of its own");
  return success();
}

LogicalResult ModelReader::countAlgorithms() {
  pipeline.ownOptimizer = options.hasOptimizer;
  pipeline.algorithms = llvm::count_if(module->getOps<func::FuncOp>(), [](func::FuncOp function) {
    return function.getSymName().starts_with("algorithm.");
  });
  if (pipeline.algorithms > 1 && options.emit == EmitKind::ONNX)
    return messages.fail("expected --emit=library for the " + Twine(pipeline.algorithms) + " algorithms of '" +
                         options.input + "', got --emit=onnx: a file holds one step; in a library each is a function");
  if (pipeline.algorithms > 1 && options.replicas != "1")
    return messages.fail("expected --replicas=1 for " + Twine(pipeline.algorithms) + " algorithms, got " +
                         options.replicas + ": replicas share the gradients of one step");
  if (pipeline.algorithms > 1 && options.accumulate > 1)
    return messages.fail("expected --accumulate=1 for " + Twine(pipeline.algorithms) + " algorithms, got " +
                         Twine(options.accumulate));
  return success();
}

std::string ModelReader::flagOfSteps() const {
  for (auto [flag, value] : {std::pair("--train=", &options.train), std::pair("--freeze=", &options.freeze),
                             std::pair("--tie=", &options.tie), std::pair("--batch-norm=", &options.batchNorm)})
    if (!value->empty())
      return flag + *value;
  return options.flagOfStepFile();
}

void ModelReader::sayNodesForm() {
  std::optional<TrainingForm> form = notedForm(*module);
  if (!form)
    return;
  form->used = "the nodes as they are";
  messages.progress(form->text());
  if (options.policy != "fp32")
    messages.log << "warning: the backward pass of '" << options.input
                 << "' is rewritten node by node, without masters or a "
                 << "loss scale; --backward=file writes the training step, which has what " << options.policy
                 << " asks for\n";
}
