// SPDX-License-Identifier: Apache-2.0
// Evaluation models beside training models: a function over the same states.
#include "Artifacts.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Import/Roles.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

class EvaluationReader {
public:
  EvaluationReader(ModuleOp module, const ImportOptions &options) : module(module), options(options) {
    for (auto state : module.getOps<train::StateOp>())
      states[state.getSymName()] = state;
  }

  /// The names of the results.
  FailureOr<std::string> run() {
    Location loc = proto::namedLoc(module.getContext(), options.evalModel);
    auto file = proto::openFile("evaluation model", options.evalModel, module.getLoc());
    ModelProto model;
    std::vector<TensorProto> initializers;
    ImportOptions plain;
    plain.bindings = options.bindings;
    if (failed(file) || failed(proto::parseModel((*file)->getBuffer(), model, loc)) || failed(takeValues(model)))
      return failure();
    dropStatistics(model);
    if (failed(proto::prepareModel(model, initializers, plain, loc, /*isPart=*/true)))
      return failure();
    StringRef folder = llvm::sys::path::parent_path(options.evalModel); // for external data
    FailureOr<OwningOpRef<ModuleOp>> read =
        proto::buildModule(model, initializers, folder.empty() ? "." : folder, plain, module.getContext());
    if (failed(read) || failed(assignRoles(**read)))
      return failure();
    auto function = (*read)->lookupSymbol<func::FuncOp>("main");
    if (failed(shareInputs(function)) || failed(shareStates(**read)))
      return failure();
    function->remove();
    function.setSymName("evaluation");
    module.push_back(function);
    std::string results;
    for (const ValueInfoProto &output : model.graph().output())
      results += (results.empty() ? "'" : ", '") + output.name() + "'";
    return results;
  }

private:
  /// ONNX Runtime takes batch normalization out of training mode and leaves it the results of that mode, which the
  /// standard does not have there.
  static void dropStatistics(ModelProto &model) {
    for (NodeProto &node : *model.mutable_graph()->mutable_node()) {
      bool trains = llvm::any_of(node.attribute(),
                                 [](const AttributeProto &a) { return a.name() == "training_mode" && a.i() != 0; });
      if (node.op_type() == "BatchNormalization" && !trains && node.output_size() > 1)
        node.mutable_output()->DeleteSubrange(1, node.output_size() - 1);
    }
  }

  /// Inputs that are no states of the training model, and of which the checkpoint has values.
  LogicalResult takeValues(ModelProto &model) {
    if (options.checkpoint.empty())
      return success();
    FailureOr<proto::Checkpoint> checkpoint = proto::openCheckpoint(options, module.getLoc());
    if (failed(checkpoint))
      return failure();
    llvm::StringMap<TensorProto *> values;
    for (auto *list : {&checkpoint->trained, &checkpoint->frozen})
      for (TensorProto &tensor : *list)
        if (!states.contains(tensor.name()))
          values[tensor.name()] = &tensor;
    GraphProto &graph = *model.mutable_graph();
    google::protobuf::RepeatedPtrField<ValueInfoProto> kept;
    for (ValueInfoProto &input : *graph.mutable_input()) {
      if (TensorProto *tensor = values.lookup(input.name()))
        *graph.add_initializer() = std::move(*tensor);
      else
        kept.Add(std::move(input));
    }
    graph.mutable_input()->Swap(&kept);
    return success();
  }

  /// Inputs called as states of the training model are these.
  LogicalResult shareInputs(func::FuncOp function) {
    OpBuilder builder = OpBuilder::atBlockBegin(&function.getBody().front());
    llvm::BitVector shared(function.getNumArguments());
    for (BlockArgument argument : function.getArguments()) {
      auto name = getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber());
      train::StateOp state = name ? states.lookup(train::TrainDialect::symbolOf(name.getValue())) : train::StateOp();
      if (!state)
        continue;
      if (state.getType() != argument.getType())
        return mismatch(state, argument.getType());
      argument.replaceAllUsesWith(
          train::ReadOp::create(builder, argument.getLoc(), state.getType(), state.getSymName()));
      shared.set(argument.getArgNumber());
    }
    return function.eraseArguments(shared);
  }

  /// Initializers of the same name are one state; others come along, and no step changes them.
  LogicalResult shareStates(ModuleOp read) {
    for (auto state : llvm::make_early_inc_range(read.getOps<train::StateOp>())) {
      if (train::StateOp known = states.lookup(state.getSymName())) {
        if (known.getType() != state.getType())
          return mismatch(known, state.getType());
        continue;
      }
      state.setFrozen(state.getRole() == train::Role::parameter);
      state->remove();
      module.insert(module.getBody()->begin(), state);
    }
    return success();
  }

  LogicalResult mismatch(train::StateOp state, Type type) {
    return emitError(proto::namedLoc(module.getContext(), state.getTensorName()))
           << "expected '" << state.getTensorName() << "' in evaluation model '" << options.evalModel << "' as "
           << state.getType() << ", as the training model has it, got " << type;
  }

  ModuleOp module;
  const ImportOptions &options;
  llvm::StringMap<train::StateOp> states;
};

} // namespace

LogicalResult proto::addEvaluation(ModuleOp module, const ImportOptions &options, TrainingForm &form) {
  if (options.evalModel.empty())
    return success();
  FailureOr<std::string> results = failure();
  std::string problem;
  {
    // One that lies in the folder and cannot be used is no reason not to train.
    ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &diagnostic) {
      if (!options.evalModelIsFound)
        return failure();
      if (problem.empty())
        problem = diagnostic.str();
      return success();
    });
    results = EvaluationReader(module, options).run();
  }
  if (succeeded(results)) {
    form.evaluation = "the file's, results " + *results;
    return success();
  }
  if (!options.evalModelIsFound)
    return failure();
  emitWarning(namedLoc(module.getContext(), options.evalModel))
      << "the evaluation model is not used, and evaluation made from the training model: " << problem;
  return success();
}
