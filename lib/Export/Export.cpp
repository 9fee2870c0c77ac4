// SPDX-License-Identifier: Apache-2.0
// Core graphs to ONNX files: functions to graphs, states to initializers.
#include "mpt/Export/Export.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "Portable.h"
#include "States.h"

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;

namespace {

const ExportRules &exportRules() {
  static const ExportRules rules = [] {
    ExportRules table;
    for (auto add : {addCastRules, addConvRules, addElementwiseRules, addGatherRules, addMatMulRules, addNormRules,
                     addPoolRules, addRandomRules, addReduceRules, addResizeRules, addScatterRules, addShapeRules})
      add(table);
    return table;
  }();
  return rules;
}

/// Replaces composites that have no rule by their decompositions, until none is left: the same function, rounding
/// by rounding.
void decomposeWithoutRule(func::FuncOp function) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      auto composite = dyn_cast<Decomposable>(op);
      if (!composite || exportRules().contains(op.getName().getStringRef()))
        continue;
      OpBuilder builder(&op);
      FailureOr<SmallVector<Value>> values = composite.decompose(builder);
      if (failed(values))
        continue;
      op.replaceAllUsesWith(*values);
      op.erase();
      changed = true;
    }
  }
}

void describe(pb::ValueInfoProto &info, StringRef name, Type type) {
  auto tensor = cast<RankedTensorType>(type);
  info.set_name(name.str());
  pb::TypeProto_Tensor &proto = *info.mutable_type()->mutable_tensor_type();
  proto.set_elem_type(onnxElementType(tensor.getElementType()));
  proto.mutable_shape();
  for (int64_t extent : tensor.getShape())
    proto.mutable_shape()->add_dim()->set_dim_value(extent);
}

/// One function as a graph.
class GraphExport {
public:
  GraphExport(func::FuncOp function, pb::GraphProto &graph, OnnxModelParts &parts, States &states,
              llvm::StringMap<OnnxValue> &inputs, bool stateInputs)
      : function(function), graph(graph), writer(graph, parts), states(states), inputs(inputs),
        stateInputs(stateInputs) {
    writer.context = function.getContext();
    addStateRules();
  }

  LogicalResult run() {
    graph.set_name(function.getName().str());
    for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
      auto name = getArgAttr<MPTDialect::NameAttrHelper>(function, i);
      // An input of the same name belongs to another graph of the model, which this one sees.
      OnnxValue &known = inputs[name ? name.getValue() : "input"];
      if (known.empty()) {
        known = writer.unique(name ? name.getValue() : "input");
        describe(*graph.add_input(), known, argument.getType());
        writer.declare(known, elementOf(argument));
      }
      writer.set(argument, known);
    }
    if (failed(reserveNames()))
      return failure();
    findImplicit();
    for (Operation &op : function.getBody().front().without_terminator())
      if (failed(exportOp(op)))
        return failure();
    exportReturn(function.getBody().front().getTerminator());
    nameOutputs();
    return success();
  }

  /// Output with the new value, by state.
  llvm::StringMap<OnnxValue> updates;

private:
  /// States and outputs keep their names, whatever nodes are called.
  LogicalResult reserveNames() {
    for (Operation &op : function.getBody().front()) {
      auto state = op.getAttrOfType<FlatSymbolRefAttr>("state");
      if (state && failed(states.get(state.getValue())))
        return failure();
    }
    for (auto write : function.getOps<train::WriteOp>()) {
      updates[write.getState()] = writer.unique((train::TrainDialect::tensorName(write.getState()) + "_next").str());
      if (!stateInputs)
        continue;
      FailureOr<OnnxValue> state = states.get(write.getState());
      if (failed(state))
        return failure();
      describe(*graph.add_input(), *state, write.getValue().getType());
    }
    for (unsigned i = 0; i < function.getNumResults(); ++i) {
      auto name = getResultAttr<MPTDialect::NameAttrHelper>(function, i);
      results.push_back(writer.unique(name ? name.getValue() : "output"));
    }
    return success();
  }

  /// Finds values that need not repeat their elements: readers are elementwise, and along each axis an operand has the
  /// extent to which ONNX broadcasts.
  void findImplicit() {
    for (Operation &op : function.getBody().front()) {
      if ((!isa<BroadcastOp>(op) && !op.hasTrait<OpTrait::ConstantLike>()) || op.use_empty())
        continue;
      Value value = op.getResult(0);
      writer.implicit.insert(value);
      if (!llvm::all_of(op.getUsers(), [&](Operation *user) {
            return user->hasTrait<OpTrait::Elementwise>() &&
                   llvm::all_of(axisRange(0, tensorType(value).getRank()), [&](int64_t axis) {
                     return llvm::any_of(user->getOperands(), [&](Value other) { return spans(other, value, axis); });
                   });
          }))
        writer.implicit.erase(value);
    }
  }

  /// Whether an operand has the extent of `value` along an axis in the file.
  bool spans(Value operand, Value value, int64_t axis) const {
    if (shapeOf(operand) != shapeOf(value) || shapeOf(value)[axis] == 1)
      return shapeOf(operand) == shapeOf(value);
    if (!writer.isImplicit(operand))
      return true;
    auto broadcast = operand.getDefiningOp<BroadcastOp>();
    auto dims = broadcast ? broadcast.getDims() : ArrayRef<int64_t>();
    auto at = llvm::find(dims, axis);
    return at != dims.end() && shapeOf(broadcast.getX())[at - dims.begin()] != 1;
  }

  /// Graph outputs, in order. A node that makes one makes it under that name, unless another output has taken it:
  /// executors copy the operand of Identity.
  void nameOutputs() {
    llvm::StringMap<OnnxValue> renamed;
    llvm::StringSet<> made;
    for (const pb::NodeProto &node : graph.node())
      made.insert(node.output().begin(), node.output().end());
    SmallVector<std::pair<OnnxValue, OnnxValue>> copies;
    for (const Output &output : outputs) {
      describe(*graph.add_output(), output.name, output.type);
      if (!made.contains(output.value) || !renamed.try_emplace(output.value, output.name).second)
        copies.emplace_back(output.value, output.name);
    }
    auto rename = [&](std::string &name) {
      if (auto found = renamed.find(name); found != renamed.end())
        name = found->second;
    };
    for (pb::NodeProto &node : *graph.mutable_node()) {
      llvm::for_each(*node.mutable_input(), rename);
      llvm::for_each(*node.mutable_output(), rename);
    }
    for (auto &[value, name] : copies) {
      rename(value);
      pb::NodeProto &node = *graph.add_node();
      node.set_op_type("Identity");
      node.add_input(value);
      node.add_output(name);
      node.set_name(name);
    }
  }

  LogicalResult exportOp(Operation &op) {
    writer.startOp(op.getLoc());
    StringRef name = op.getName().getStringRef();
    if (Type type = unportableType(op))
      return op.emitOpError() << "expected a policy of f16 and f32 for --onnx-ops=portable, got " << type
                              << ": leave the flag, or take such a policy";
    for (const ExportRules *rules : {&std::as_const(stateRules), &exportRules()})
      if (auto rule = rules->find(name); rule != rules->end())
        return rule->second(&op, writer);
    return op.emitOpError() << "has no ONNX form";
  }

  /// A float type of an operand or result of `op` that a portable file does not have.
  Type unportableType(Operation &op) const {
    if (writer.isPortable())
      for (Type type : llvm::concat<const Type>(op.getOperandTypes(), op.getResultTypes()))
        if (Type element = getElementTypeOrSelf(type); isa<FloatType>(element) && !element.isF32() && !element.isF16())
          return element;
    return {};
  }

  void exportReturn(Operation *terminator) {
    writer.startOp(terminator->getLoc());
    for (auto [value, name] : llvm::zip_equal(terminator->getOperands(), results))
      outputs.push_back({writer.get(value), value.getType(), name});
  }

  /// Rules of the ops around the core graph, which speak of this graph's states and outputs.
  void addStateRules() {
    stateRules[train::ReadOp::getOperationName()] = [this](Operation *op, OnnxWriter &) {
      auto read = cast<train::ReadOp>(op);
      FailureOr<OnnxValue> value = states.get(read.getState());
      if (succeeded(value))
        writer.set(read.getValue(), *value);
      return LogicalResult(value);
    };
    stateRules[train::WriteOp::getOperationName()] = [this](Operation *op, OnnxWriter &) {
      return exportWrite(cast<train::WriteOp>(op));
    };
    addRule<train::GradientOp>(stateRules,
                               [](train::GradientOp op, OnnxWriter &w) { return Values{w.get(op.getGradient())}; });
  }

  /// Where the condition does not hold, the new value is the old one.
  LogicalResult exportWrite(train::WriteOp write) {
    FailureOr<OnnxValue> old = states.get(write.getState());
    if (failed(old))
      return failure();
    OnnxValue value = writer.get(write.getValue());
    if (write.getCondition())
      value = writer.node("Where", {writer.get(write.getCondition()), value, *old});
    outputs.push_back({value, write.getValue().getType(), updates[write.getState()]});
    return success();
  }

  func::FuncOp function;
  pb::GraphProto &graph;
  OnnxWriter writer;
  ExportRules stateRules;
  States &states;
  llvm::StringMap<OnnxValue> &inputs;
  bool stateInputs;
  SmallVector<OnnxValue> results;
  struct Output {
    OnnxValue value;
    Type type;
    OnnxValue name;
  };
  SmallVector<Output> outputs;
};

class ModelExport {
public:
  explicit ModelExport(ModuleOp module, const StepFile &file = {})
      : module(module), stateInputs(file.stateInputs), states(module, parts) {
    parts.widens = file.widens;
    parts.portable = file.portable;
    model.set_ir_version(exportIRVersion);
    model.set_producer_name("mpt");
    model.add_opset_import()->set_version(exportOpset);
  }

  LogicalResult add(func::FuncOp function, pb::GraphProto &graph) {
    OwningOpRef<func::FuncOp> copy = function.clone();
    decomposeWithoutRule(*copy);
    if (parts.portable)
      narrowScalars(*copy);
    GraphExport one(*copy, graph, parts, states, inputs, stateInputs);
    if (failed(one.run()))
      return failure();
    updates = std::move(one.updates);
    return success();
  }

  void metadata(StringRef key, std::string value) {
    pb::StringStringEntryProto &entry = *model.add_metadata_props();
    entry.set_key(key.str());
    entry.set_value(std::move(value));
  }

  /// The update bindings of the last graph added.
  void bind(pb::TrainingInfoProto &info) {
    for (auto state : module.getOps<train::StateOp>())
      if (auto next = updates.find(state.getSymName()); next != updates.end()) {
        pb::StringStringEntryProto &binding = *info.add_update_binding();
        binding.set_key(*states.get(state.getSymName()));
        binding.set_value(next->second);
      }
  }

  LogicalResult write(StringRef path) {
    if (!parts.functions.empty()) {
      pb::OperatorSetIdProto &local = *model.add_opset_import();
      local.set_domain(exportDomain.str());
      local.set_version(1);
    }
    for (auto &[name, function] : parts.functions)
      *model.add_functions() = function;
    ModelFile file;
    file.addFields(graph);
    for (OnnxModelParts::Tensor &tensor : parts.tensors)
      file.addInitializer(tensor.proto, tensor.payload);
    return file.write(model, path, /*external=*/false, module.getLoc());
  }

  std::string describeStates() { return states.toJSON(updates); }

  ModuleOp module;
  pb::ModelProto model; ///< everything but the graph
  pb::GraphProto graph; ///< everything but its initializers

private:
  bool stateInputs;
  OnnxModelParts parts;
  States states;
  llvm::StringMap<OnnxValue> inputs, updates;
};

} // namespace

LogicalResult mpt::exportOnnx(ModuleOp module, func::FuncOp function, StringRef path) {
  ModelExport model(module);
  return failure(failed(model.add(function, model.graph)) || failed(model.write(path)));
}

LogicalResult mpt::exportStep(ModuleOp module, const StepFile &file, StringRef path) {
  auto step = module.lookupSymbol<func::FuncOp>("step");
  if (!step)
    return module.emitError() << "expected func @step to export, found none";
  ModelExport model(module, file);
  if (file.form == StepForm::Joint) {
    if (failed(model.add(step, model.graph)))
      return failure();
  } else {
    auto use = module.lookupSymbol<func::FuncOp>("predict");
    if (!use)
      use = module.lookupSymbol<func::FuncOp>("evaluate");
    if (!use)
      return module.emitError() << "expected func @predict or @evaluate as the model's graph, found none";
    pb::TrainingInfoProto &info = *model.model.add_training_info();
    if (failed(model.add(use, model.graph)) || failed(model.add(step, *info.mutable_algorithm())))
      return failure();
    model.bind(info);
  }
  model.metadata(mpt::onnx::ONNXDialect::kFormKey, file.form == StepForm::Joint ? "joint" : "training-info");
  model.metadata(mpt::onnx::ONNXDialect::kStatesKey, model.describeStates());
  return model.write(path);
}
