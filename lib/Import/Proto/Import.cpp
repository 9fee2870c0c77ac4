// SPDX-License-Identifier: Apache-2.0
// Entry points of the importer: from a file, from memory.
#include "Artifacts.h"
#include "Computed.h"
#include "Proto.h"

#include "Sites.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Evaluation.h"
#include "mpt/Import/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;

/// Where in the file the states come from.
static TensorSites sitesOf(ArrayRef<::onnx::TensorProto> tensors, const proto::StepInfo &step) {
  TensorSites sites;
  for (const ::onnx::TensorProto &tensor : tensors) {
    auto known = step.states.find(tensor.name());
    if (TensorSite site = proto::siteOf(tensor); site.isInFile())
      sites[known == step.states.end() ? tensor.name() : known->second.name] = std::move(site);
  }
  return sites;
}

namespace {
/// Changes of exporters to a module that has a forward pass alone, undone for training.
struct ForwardForm {
  LogicalResult settle(::onnx::ModelProto &model, const ImportOptions &options, StringRef folder,
                       proto::DeclaredParameters &declared, Location loc) {
    FailureOr<int64_t> norms = proto::settleBatchNorms(model, options, loc);
    if (failed(norms))
      return failure();
    frozenNorms = *norms;
    if (options.trains)
      computed.emplace(model.graph());
    return proto::settleTensors(model, options, folder, declared, joined, separated, loc);
  }

  /// Leaves on the states where they come from, for assignRoles().
  void noteOrigins(ModuleOp module, const proto::DeclaredParameters &declared) const {
    for (auto state : module.getOps<train::StateOp>()) {
      if (auto word = declared.find(state.getTensorName()); word != declared.end())
        setAttr<mpt::onnx::ONNXDialect::DeclaredAttrHelper>(
            state, mpt::onnx::DeclaredAttr::get(state.getContext(), word->second));
      if (auto from = separated.find(state.getTensorName()); from != separated.end())
        setAttr<mpt::onnx::ONNXDialect::SeparatedFromAttrHelper>(state,
                                                                 StringAttr::get(state.getContext(), from->second));
    }
  }

  void note(ModuleOp module) const {
    if (computed)
      computed->warn(module, module.getLoc());
    if (frozenNorms == 0 && joined.empty())
      return;
    Builder builder(module.getContext());
    NamedAttrList manifest(getAttr<MPTDialect::ManifestAttrHelper>(module)), copies;
    if (frozenNorms)
      manifest.set("frozen_batch_norms", builder.getI64IntegerAttr(frozenNorms));
    for (const auto &[copy, kept] : joined)
      copies.set(copy, builder.getStringAttr(kept));
    if (!copies.empty())
      manifest.set("joined", copies.getDictionary(module.getContext()));
    setAttr<MPTDialect::ManifestAttrHelper>(module, manifest.getDictionary(module.getContext()));
  }

  std::optional<proto::ComputedTensors> computed; ///< of the file as it came, where a step is made of it
  proto::SeparatedTensors separated;
  proto::JoinedTensors joined;
  int64_t frozenNorms = 0;
};
} // namespace

/// Refuses flags that the training information of the file makes redundant.
static LogicalResult checkBrought(const ImportOptions &options, Location loc) {
  if (!options.train.empty())
    return emitError(loc) << "expected no --train: the training information of the file says what is trained";
  if (!options.gradients.empty() || !options.next.empty() || !options.seed.empty())
    return emitError(loc) << "expected no --gradient, --next or --seed: the training information of the file says what "
                             "of it they would say of outputs";
  return success();
}

/// The initializers that a file's training moves.
static llvm::StringSet<> trainedBy(const proto::StepInfo &step, const proto::JointRoles &joint) {
  llvm::StringSet<> trained;
  trained.insert_range(step.states.keys());
  for (const auto *map : {&joint.gradients, &joint.next})
    for (const auto &entry : *map)
      trained.insert(entry.getValue());
  return trained;
}

/// Of a file that holds whole steps: an evaluation of its own has no place beside them.
static LogicalResult checkEvaluation(const ImportOptions &options, Location loc) {
  if (options.evalModel.empty())
    return success();
  if (!options.evalModelIsFound)
    return emitError(loc)
           << "expected no --eval-model: the file holds whole steps, and evaluation is made from its graph";
  emitWarning(loc) << "the evaluation model '" << options.evalModel
                   << "' is not used: the file holds whole steps, and evaluation is made from its graph";
  return success();
}

static LogicalResult takeEvaluation(ModuleOp module, const ImportOptions &options, bool isStep, TrainingForm &form,
                                    Location loc) {
  if (isStep)
    return checkEvaluation(options, loc);
  // Whoever asks for another step than the file's does not mean the folder's evaluation either, unless by its name.
  return options.ignoresAlgorithms && options.evalModelIsFound ? success()
                                                               : proto::addEvaluation(module, options, form);
}

/// Dialects and interfaces that an import builds and asks.
static void loadDialects(MLIRContext *context) {
  DialectRegistry meanings; // constant folding evaluates ops
  registerEvaluationModels(meanings);
  registerOperatorClasses(meanings); // which tensors train follows from their uses
  context->appendDialectRegistry(meanings);
  context->loadDialect<MPTDialect, mpt::onnx::ONNXDialect, train::TrainDialect, func::FuncDialect>();
}

static FailureOr<OwningOpRef<ModuleOp>> import(StringRef bytes, StringRef folder, const ImportOptions &options,
                                               MLIRContext *context, TensorSites *sites) {
  loadDialects(context);
  Location loc = proto::namedLoc(context, options.name.empty() ? "model" : options.name);
  ::onnx::ModelProto model;
  std::vector<::onnx::TensorProto> initializers;
  if (failed(proto::parseWithSites(bytes, model, loc)))
    return failure();
  FailureOr<proto::Algorithms> algorithms = proto::takeAlgorithms(model, loc);
  if (failed(algorithms))
    return failure();
  bool brings = !algorithms->steps.empty() && !options.ignoresAlgorithms;
  FailureOr<proto::StepInfo> step = proto::takeStep(model, loc);
  if (failed(step))
    return failure();
  ::onnx::ModelProto header;
  if (brings) {
    if (failed(checkBrought(options, loc)))
      return failure();
    *step = std::move(algorithms->states);
    header = proto::modelHeader(model);
    *header.mutable_functions() = model.functions();
  }
  proto::DeclaredParameters declared = proto::declaredParameters(model.graph()); // before values are dropped
  FailureOr<proto::Artifacts> artifacts = proto::takeArtifacts(model, options, loc);
  if (failed(artifacts) || failed(proto::liftTensors(model, context))) // which are looked for among the initializers
    return failure();
  if (step->states.empty())
    proto::separateStatistics(model);
  // The gradients and updates of an algorithm are no outputs of the graph.
  FailureOr<proto::JointRoles> joint = step->states.empty() && !brings
                                           ? proto::takeJoint(model, options, loc)
                                           : FailureOr<proto::JointRoles>(proto::JointRoles());
  if (failed(joint))
    return failure();
  // Who brings a backward pass has said which tensor is which.
  ForwardForm form;
  if (!step->states.empty() || brings || joint->any())
    proto::warnOfCopies(model, folder, declared, trainedBy(*step, *joint), loc);
  else if (!artifacts->found && failed(form.settle(model, options, folder, declared, loc)))
    return failure();
  if (failed(proto::prepareModel(model, initializers, options, loc)) ||
      (brings && failed(proto::joinAlgorithms(*algorithms, model, header, initializers, options, loc))))
    return failure();
  for (const auto &next : joint->next)
    step->renewed.insert(next.getValue());
  proto::addZeros(model.graph(), *joint, initializers);
  step->zeros = joint->zeros;
  FailureOr<OwningOpRef<ModuleOp>> module = proto::buildModule(model, initializers, folder, options, context, *step,
                                                               /*header=*/nullptr, brings ? &*algorithms : nullptr);
  if (failed(module) || (artifacts->found && failed(proto::takeOptimizer(options, *joint, loc))))
    return failure();
  form.noteOrigins(**module, declared);
  if (joint->any())
    proto::noteRoles(**module, *joint);
  // A step states the roles of its tensors itself.
  if ((step->states.empty() && failed(assignRoles(**module, {options.train, options.freeze}))) ||
      (brings && failed(freezeParameters(**module, options.freeze))))
    return failure();
  form.note(**module);
  if (sites)
    *sites = sitesOf(initializers, *step);
  joint->form.form = artifacts->found ? "ONNX Runtime artifacts" : joint->form.form;
  if (artifacts->found && failed(proto::addOptimizerState(**module, artifacts->optimizer, *joint)))
    return failure();
  if (failed(takeEvaluation(**module, options, !step->states.empty(), joint->form, loc)))
    return failure();
  if (joint->any())
    proto::noteForm(**module, *joint);
  if (!algorithms->form.form.empty())
    note(**module, algorithms->form);
  if (failed(verify(**module)))
    return failure();
  return module;
}

FailureOr<OwningOpRef<ModuleOp>> mpt::importOnnxBuffer(StringRef bytes, StringRef folder, const ImportOptions &options,
                                                       MLIRContext *context) {
  return import(bytes, folder, options, context, nullptr);
}

/// True where a graph states types of values that inference finds as well: all but the types of other domains' nodes.
static bool declaresInferredTypes(const ::onnx::GraphProto &graph) {
  llvm::StringSet<> custom;
  for (const auto &node : graph.node())
    if (!node.domain().empty() && graph.value_info_size() > 0)
      custom.insert_range(node.output());
  return llvm::any_of(graph.value_info(), [&](const auto &info) { return !custom.contains(info.name()); });
}

FailureOr<OwningOpRef<ModuleOp>> mpt::importNodesBuffer(StringRef bytes, StringRef folder, StringRef name,
                                                        MLIRContext *context) {
  context->loadDialect<MPTDialect, onnx::ONNXDialect, func::FuncDialect>();
  Location loc = proto::namedLoc(context, name);
  ::onnx::ModelProto model;
  if (failed(proto::parseModel(bytes, model, loc)))
    return failure();
  ::onnx::ModelProto header = proto::modelHeader(model);
  bool declaresTypes = declaresInferredTypes(model.graph());
  TrainingForm form = proto::formOfNodes(model.graph());
  std::vector<::onnx::TensorProto> initializers;
  if (failed(proto::prepareNodes(model, initializers, loc)))
    return failure();
  ImportOptions options;
  options.name = name.str();
  FailureOr<OwningOpRef<ModuleOp>> module =
      proto::buildModule(model, initializers, folder, options, context, {}, &header);
  if (failed(module) || failed(verify(**module)))
    return failure();
  if (!form.form.empty())
    note(**module, form);
  if (declaresTypes)
    setAttr<mpt::onnx::ONNXDialect::DeclaredTypesAttrHelper>(**module, UnitAttr::get(context));
  return module;
}

static FailureOr<std::unique_ptr<llvm::MemoryBuffer>> openModel(StringRef path, MLIRContext *context) {
  return proto::openFile("model", path, FileLineColLoc::get(context, path, 0, 0));
}

/// The folder that external data is looked up in.
static StringRef folderOf(StringRef path) {
  StringRef folder = llvm::sys::path::parent_path(path);
  return folder.empty() ? "." : folder;
}

std::string mpt::trainingModelIn(StringRef path, ImportOptions &options) {
  if (!llvm::sys::fs::is_directory(path))
    return path.str();
  auto in = [&](StringRef name) {
    SmallString<256> file(path);
    llvm::sys::path::append(file, name);
    return file.str().str();
  };
  for (auto [name, member] :
       {std::pair("checkpoint", &options.checkpoint), std::pair("optimizer_model.onnx", &options.optimizerModel),
        std::pair("eval_model.onnx", &options.evalModel)})
    if (member->empty() && llvm::sys::fs::exists(in(name))) {
      *member = in(name);
      options.evalModelIsFound |= member == &options.evalModel;
    }
  return in("training_model.onnx");
}

/// ONNX Runtime's own format is a serialized session, and a folder is one of artifacts; `model` is the file that is
/// read of `path`.
static LogicalResult checkFormat(StringRef path, StringRef model, MLIRContext *context) {
  Location loc = UnknownLoc::get(context);
  constexpr StringLiteral suffix = ".ort";
  if (path.ends_with(suffix))
    return emitError(loc) << "expected a model as .onnx, got '" << path
                          << "': ONNX Runtime's own format is not read; name the .onnx file that it was made from";
  if (model == path || llvm::sys::fs::exists(model))
    return success();
  InFlightDiagnostic error = emitError(loc) << "expected training_model.onnx in folder '" << path << "', got ";
  if (llvm::sys::fs::exists(llvm::sys::path::parent_path(model) + "/training_model" + suffix))
    return error << "training_model.ort: ONNX Runtime's own format is not read; write the artifacts without "
                    "ort_format=True";
  return error << "none; name a folder that ONNX Runtime's generate_artifacts has written, or an .onnx file";
}

FailureOr<OwningOpRef<ModuleOp>> mpt::importNodes(StringRef path, StringRef name, MLIRContext *context) {
  if (failed(checkFormat(path, path, context)))
    return failure();
  auto file = openModel(path, context);
  if (failed(file))
    return failure();
  return importNodesBuffer((*file)->getBuffer(), folderOf(path), name.empty() ? llvm::sys::path::stem(path) : name,
                           context);
}

FailureOr<OwningOpRef<ModuleOp>> mpt::importWithSites(StringRef path, const ImportOptions &options,
                                                      MLIRContext *context, TensorSites *sites) {
  ImportOptions named = options;
  std::string model = trainingModelIn(path, named);
  if (failed(checkFormat(path, model, context)))
    return failure();
  auto file = openModel(model, context);
  if (failed(file))
    return failure();
  if (named.name.empty())
    named.name = llvm::sys::path::stem(path).str();
  return import((*file)->getBuffer(), folderOf(model), named, context, sites);
}
