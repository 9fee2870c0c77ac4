// SPDX-License-Identifier: Apache-2.0
// Joint graphs of others: which outputs are gradients and new values, where the seed is, which optimizer the update is.
#include "Artifacts.h"
#include "GraphValues.h"
#include "Proto.h"

#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/ONNX/TrainingRoles.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Support/NearNames.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

constexpr StringLiteral gradientSuffix = "_grad", nextSuffix = "_next";

const ValueInfoProto *find(const google::protobuf::RepeatedPtrField<ValueInfoProto> &list, StringRef name) {
  for (const ValueInfoProto &info : list)
    if (info.name() == name)
      return &info;
  return nullptr;
}

SmallVector<StringRef> namesOf(const google::protobuf::RepeatedPtrField<ValueInfoProto> &list) {
  SmallVector<StringRef> names;
  for (const ValueInfoProto &info : list)
    names.push_back(info.name());
  return names;
}

/// One parameter's new value as P - rate * gradient.
struct SGDUpdate {
  std::string gradient;         ///< the value
  std::string rate;             ///< the value
  std::optional<double> number; ///< of the rate, where that is constant
};

std::optional<SGDUpdate> matchSGD(const proto::GraphValues &values, StringRef next, StringRef parameter) {
  const NodeProto *sub = values.producer(next, "Sub");
  if (!sub || sub->input_size() != 2 || values.origin(sub->input(0)) != parameter)
    return std::nullopt;
  const NodeProto *mul = values.producer(sub->input(1), "Mul");
  for (int i = 0; mul && mul->input_size() == 2 && i < 2; ++i) {
    StringRef rate = values.origin(mul->input(i));
    std::optional<double> number = values.number(rate);
    if (number || values.isRate(rate))
      return SGDUpdate{mul->input(1 - i), rate.str(), number};
  }
  return std::nullopt;
}

class JointReader {
public:
  JointReader(ModelProto &model, const ImportOptions &options, Location loc)
      : model(model), graph(*model.mutable_graph()), options(options), loc(loc) {}

  FailureOr<proto::JointRoles> run() {
    if (failed(takeRoles()) || failed(chooseBackward()))
      return failure();
    if (!options.seed.empty() && (!roles.any() || roles.derived))
      return emitError(loc) << "--seed: expected a backward pass of the file that is used, got "
                            << (roles.derived ? "one that is made anew" : "a graph without gradients and new values")
                            << "; leave --seed out";
    if (!roles.any())
      return roles;
    if (failed(takeLoss()) || failed(markSeed()))
      return failure();
    describe();
    return roles;
  }

private:
  /// An initializer, or an input of floats that can become one.
  bool isState(StringRef name) const {
    const ValueInfoProto *input = find(graph.input(), name);
    return states.contains(name) || (input && canHold(*input));
  }
  static bool canHold(const ValueInfoProto &input) {
    const auto &type = input.type().tensor_type();
    return type.elem_type() == TensorProto::FLOAT && type.has_shape() &&
           llvm::all_of(type.shape().dim(), [](const auto &dim) { return dim.has_dim_value() && dim.dim_value() > 0; });
  }

  /// Parameters that are fed in become state, which starts at zero.
  void takeInputs() {
    // Inputs they stay until the model is prepared, and the extents that a file states take no memory.
    for (const auto *map : {&roles.gradients, &roles.next})
      for (const auto &entry : *map)
        if (!states.contains(entry.getValue()))
          roles.zeros.insert(entry.getValue());
    if (roles.zeros.empty())
      return;
    emitWarning(loc) << roles.zeros.size()
                     << " parameters are inputs of the graph: they become state that starts at zero; set "
                        "their values before the first step, or name a file that has them: --checkpoint=FILE";
  }

  /// Operand `from` is a state, of which result `to` is the new value.
  void takeNext(const NodeProto &node, int from, int to) {
    if (from >= node.input_size() || to >= node.output_size() || node.output(to).empty())
      return;
    const std::string &state = node.input(from), &value = node.output(to);
    bool known = llvm::any_of(roles.next, [&](const auto &next) { return next.getValue() == state; });
    if (known || !isState(state))
      return;
    addOutput(value, state);
    roles.next[value] = state;
  }

  /// One tensor of an optimizer of ONNX Runtime: operands from `in` on are weights, gradient, moments and a 16-bit copy
  /// of the weights; `out` are the results with their new values.
  void takeTensor(NodeProto &node, int in, llvm::ArrayRef<int> out) {
    if (in + 1 >= node.input_size())
      return;
    const std::string weights = node.input(in);
    bool known = llvm::any_of(roles.gradients, [&](const auto &entry) { return entry.getValue() == weights; });
    // Another operator over the same weights may have no copy.
    if (copies.contains(weights) && in + 4 < node.input_size()) {
      node.set_input(in + 4, "");
      if (out.size() > 4 && out[4] < node.output_size())
        node.set_output(out[4], "");
      // The gradient of the copy has the copy's type.
      std::string wide = node.input(in + 1) + "/wide";
      addCast(node.input(in + 1), wide, copies[weights]);
      node.set_input(in + 1, wide);
    }
    if (!known && isState(weights)) {
      addOutput(node.input(in + 1), weights);
      roles.gradients[node.input(in + 1)] = weights;
    }
    for (int i : {0, 2, 3})
      if (i < static_cast<int>(out.size()))
        takeNext(node, in + i, out[i]);
  }

  void addCast(const std::string &from, const std::string &to, int32_t type) {
    NodeProto &cast = *graph.add_node();
    cast.set_name(to);
    cast.set_op_type("Cast");
    cast.add_input(from);
    cast.add_output(to);
    AttributeProto &attribute = *cast.add_attribute();
    attribute.set_name("to");
    attribute.set_type(AttributeProto::INT);
    attribute.set_i(type);
  }

  /// A 16-bit copy that an optimizer writes beside its weights becomes a cast of these, where the forward pass reads
  /// it: which copies there are is a policy's.
  void takeCopy(const NodeProto &node, int in) {
    if (in + 4 >= node.input_size() || node.input(in + 4).empty())
      return;
    auto tensor = [&](const std::string &name) {
      return llvm::find_if(graph.initializer(), [&](const TensorProto &tensor) { return tensor.name() == name; });
    };
    auto weights = tensor(node.input(in)), copy = tensor(node.input(in + 4));
    if (weights == graph.initializer().end() || copy == graph.initializer().end())
      return;
    copies[weights->name()] = weights->data_type();
    addCast(weights->name(), copy->name(), copy->data_type());
    states.erase(copy->name());
    auto inputs = graph.mutable_input();
    inputs->erase(std::remove_if(inputs->begin(), inputs->end(),
                                 [&](const ValueInfoProto &input) { return input.name() == copy->name(); }),
                  inputs->end());
    graph.mutable_initializer()->erase(copy);
  }

  /// ONNX Runtime's optimizers write their operands in place, and the graph has no outputs for them.
  void takeOptimizers() {
    auto isOptimizer = [](const NodeProto &node) {
      return node.domain() == "com.microsoft" &&
             llvm::is_contained({"SGDOptimizer", "AdamOptimizer", "LambOptimizer"}, node.op_type());
    };
    if (llvm::none_of(graph.node(), isOptimizer))
      return;
    google::protobuf::RepeatedPtrField<NodeProto> nodes;
    nodes.Swap(graph.mutable_node());
    for (const NodeProto &node : nodes) {
      if (node.op_type() == "AdamOptimizer" && isOptimizer(node))
        takeCopy(node, 2);
      for (int in = 5; node.op_type() == "LambOptimizer" && isOptimizer(node) && in < node.input_size(); in += 5)
        takeCopy(node, in);
    }
    for (NodeProto &node : nodes) {
      if (isOptimizer(node))
        takeOptimizer(node);
      *graph.add_node() = std::move(node);
    }
  }

  void takeOptimizer(NodeProto &node) {
    if (node.op_type() == "SGDOptimizer")
      takeTensor(node, 1, {0});
    if (node.op_type() == "AdamOptimizer") {
      takeTensor(node, 2, {3, 4, 1, 2, 5});
      takeNext(node, 1, 0);
    }
    if (node.op_type() == "LambOptimizer") {
      for (int in = 5, out = 1; in + 3 < node.input_size(); in += 5, out += 5)
        takeTensor(node, in, {out, out + 1, out + 2, out + 3, out + 4});
      takeNext(node, 4, 0);
    }
  }

  /// Makes `value`, of the type of `state`, an output.
  void addOutput(const std::string &value, const std::string &state) {
    if (find(graph.output(), value))
      return;
    ValueInfoProto &info = *graph.add_output();
    if (const ValueInfoProto *input = find(graph.input(), state))
      info = *input;
    for (const TensorProto &tensor : graph.initializer())
      if (tensor.name() == state)
        proto::declareType(info, tensor);
    info.set_name(value);
  }

  /// Roles by name, then the roles that the user states.
  LogicalResult takeRoles() {
    for (const TensorProto &tensor : graph.initializer())
      states.insert(tensor.name());
    auto takeOutputs = [&](auto isTaken) {
      for (const ValueInfoProto &output : graph.output()) {
        StringRef name = output.name();
        if (StringRef of = name; of.consume_back(gradientSuffix) && isTaken(of))
          roles.gradients[name] = of.str();
        if (StringRef of = name; of.consume_back(nextSuffix) && isTaken(of))
          roles.next[name] = of.str();
      }
    };
    // Where initializers have gradients, inputs are data, not parameters, and their gradients are results.
    takeOutputs([&](StringRef name) { return states.contains(name); });
    if (roles.gradients.empty()) {
      takeOutputs([&](StringRef name) { return isState(name); });
      dropGradientsOfData();
    }
    proto::takeCustomaryNames(graph, roles.gradients, roles.next);
    for (auto *map : {&roles.gradients, &roles.next})
      for (auto &entry : llvm::make_early_inc_range(*map))
        if (!isState(entry.getValue()))
          map->erase(entry.getKey());
    for (auto [given, map, flag] : {std::tuple(&options.gradients, &roles.gradients, "--gradient"),
                                    std::tuple(&options.next, &roles.next, "--next")})
      for (const auto &[state, output] : *given) {
        if (!isState(state))
          return emitError(loc) << flag << ": expected an initializer, got '" << state << "'; "
                                << whatThereIs(state, llvm::to_vector(states.keys())) << " [mpt-no-match]";
        if (!find(graph.output(), output))
          return emitError(loc) << flag << ": expected an output of the graph, got '" << output << "'; "
                                << whatThereIs(output, namesOf(graph.output())) << " [mpt-no-match]";
        for (auto &[known, of] : llvm::make_early_inc_range(*map))
          if (of == state)
            map->erase(known);
        (*map)[output] = state;
      }
    takeOptimizers();
    takeInputs();
    return success();
  }

  /// A model may return the gradient of an input beside its weights, as forces are of positions.
  void dropGradientsOfData() {
    if (roles.gradients.empty() || !roles.next.empty() || proto::inputsCanTrain(graph, roles.gradients))
      return;
    std::string output = roles.gradients.begin()->getKey().str(), input = roles.gradients.begin()->getValue();
    emitWarning(loc) << "output '" << output << "' is taken for a result, as '" << input
                     << "' is an input beside the weights of the file; where it is a parameter: --gradient " << input
                     << "=" << output;
    roles.gradients.clear();
  }

  /// The backward pass of the file, or only its loss and update.
  LogicalResult chooseBackward() {
    if (options.backward == "file" && roles.gradients.empty() && roles.next.empty())
      return emitError(loc) << "--backward=file: expected outputs that are gradients or new values of initializers, "
                               "named P_grad and P_next, got none; name them: --gradient P=OUTPUT, --next P=OUTPUT";
    takeUpdate();
    if (roles.gradients.empty() && roles.next.empty())
      return success();
    roles.derived = options.backward == "own";
    if (!roles.derived && roles.gradients.empty())
      // New statistics alone are no backward pass.
      roles.derived = options.backward.empty() && !changesWeights();
    return success();
  }

  /// The values that the loss is computed from, running statistics of nodes that renew them aside.
  llvm::StringSet<> valuesOfLoss(const proto::GraphValues &values) const {
    llvm::StringSet<> found;
    SmallVector<std::string> work{lossName()};
    while (!work.empty())
      if (const NodeProto *node = values.nodeOf(work.pop_back_val());
          node && llvm::none_of(node->output(), [&](const std::string &output) { return roles.next.contains(output); }))
        for (const std::string &input : node->input())
          if (found.insert(input).second)
            work.push_back(input);
    return found;
  }

  /// True where a tensor that the loss is computed from has a new value.
  bool changesWeights() const {
    llvm::StringSet<> ofLoss = valuesOfLoss(proto::GraphValues(graph));
    return llvm::any_of(roles.next, [&](const auto &next) { return ofLoss.contains(next.getValue()); });
  }

  /// Where all new values of parameters are P - rate * gradient, the update is SGD, which --optimizer can say. Of other
  /// updates training-adopt-backward finds the gradients.
  void takeUpdate() {
    proto::GraphValues values(graph);
    llvm::StringMap<std::string> gradientOf;
    for (const auto &gradient : roles.gradients)
      gradientOf[gradient.getValue()] = gradient.getKey().str();
    llvm::StringMap<std::string> found; // value of the gradient -> parameter
    std::optional<SGDUpdate> first;
    llvm::StringSet<> outputs, ofLoss = valuesOfLoss(values);
    for (const auto &next : roles.next) {
      StringRef parameter = next.getValue();
      std::optional<SGDUpdate> update = matchSGD(values, next.getKey(), parameter);
      auto known = gradientOf.find(parameter);
      if (!update) {
        if (known != gradientOf.end() || ofLoss.contains(parameter))
          return;
        continue;
      }
      if (known != gradientOf.end() && values.origin(update->gradient) != values.origin(known->second))
        return;
      if (known == gradientOf.end() && values.isArithmetic(update->gradient))
        return;
      if (first && (first->rate != update->rate && first->number != update->number))
        return;
      first = update;
      if (known == gradientOf.end())
        found[update->gradient] = parameter.str();
      outputs.insert(next.getKey());
    }
    if (!first || feedsOtherStates(values, found, outputs))
      return;
    roles.optimizer =
        first->number ? "sgd,lr=" + proto::numberText(static_cast<float>(*first->number)) : "sgd,lr=0.001";
    roles.rate = first->rate;
    drop(outputs);
    for (const auto &gradient : found) {
      addOutput(gradient.getKey().str(), gradient.getValue());
      roles.gradients[gradient.getKey()] = gradient.getValue();
    }
  }

  /// True where other states, averages of parameters or sums of gradients, take new values from operands or results
  /// of SGD: an optimizer in its place would not write them.
  bool feedsOtherStates(const proto::GraphValues &values, const llvm::StringMap<std::string> &found,
                        const llvm::StringSet<> &outputs) const {
    SmallVector<StringRef> work;
    llvm::StringSet<> starts, seen;
    for (const auto *map : {&found, &roles.gradients})
      for (const auto &gradient : *map)
        starts.insert(values.origin(gradient.getKey()));
    for (StringRef output : outputs.keys())
      starts.insert(values.origin(output));
    llvm::append_range(work, starts.keys());
    while (!work.empty())
      for (const NodeProto *reader : values.readersOf(work.pop_back_val()))
        for (const std::string &output : reader->output())
          if (seen.insert(output).second)
            work.push_back(output);
    return llvm::any_of(roles.next, [&](const auto &next) {
      return !outputs.contains(next.getKey()) &&
             (seen.contains(values.origin(next.getKey())) || starts.contains(values.origin(next.getKey())));
    });
  }

  /// Outputs that are not needed any more; their nodes die with them.
  void drop(const llvm::StringSet<> &names) {
    google::protobuf::RepeatedPtrField<ValueInfoProto> kept;
    for (ValueInfoProto &output : *graph.mutable_output())
      if (!names.contains(output.name()))
        kept.Add(std::move(output));
    graph.mutable_output()->Swap(&kept);
    for (const auto &name : names) {
      roles.gradients.erase(name.getKey());
      roles.next.erase(name.getKey());
    }
  }

  std::string lossName() const {
    std::string loss;
    for (const ValueInfoProto &output : graph.output()) {
      bool free = !roles.gradients.contains(output.name()) && !roles.next.contains(output.name());
      if (free && proto::isScalarFloat(output) && (loss.empty() || output.name() == "loss"))
        loss = output.name();
    }
    return loss;
  }

  LogicalResult takeLoss() {
    roles.loss = lossName();
    if (roles.loss.empty())
      return emitError(loc) << "expected a scalar loss among the outputs of a graph that has gradients or new values "
                               "as outputs, got none; add it as an output [mpt-no-loss]";
    return success();
  }

  /// `X` becomes mpt.Seed(X) for all its readers, X being named, or by custom called like the loss's gradient.
  LogicalResult markSeed() {
    if (roles.derived)
      return success();
    std::string seed = options.seed;
    if (seed.empty())
      for (const TensorProto &tensor : graph.initializer())
        if (tensor.name() == roles.loss + gradientSuffix.str())
          seed = tensor.name();
    if (seed.empty())
      return success();
    proto::GraphValues values(graph);
    const ValueInfoProto *input = find(graph.input(), seed);
    if (!values.defines(seed) && !values.tensor(seed) && !input)
      return emitError(loc) << "--seed: expected a value of the graph, got '" << seed << "'; "
                            << whatThereIs(seed, values.names()) << " [mpt-no-match]";
    if (input && !values.tensor(seed))
      return emitError(loc) << "--seed: expected a value that the file computes or holds, got the graph input '" << seed
                            << "'; make it an initializer of ones";
    roles.seed = seed;
    roles.seedIsNamed = !options.seed.empty();
    std::string marked = seed + "/seed";
    int at = 0;
    for (int i = 0; i < graph.node_size(); ++i) {
      if (llvm::is_contained(graph.node(i).output(), seed))
        at = i + 1;
      for (std::string &operand : *graph.mutable_node(i)->mutable_input())
        if (operand == seed)
          operand = marked;
    }
    NodeProto &node = *graph.add_node();
    node.set_name(seed);
    node.set_domain("mpt");
    node.set_op_type("Seed");
    node.add_input(seed);
    node.add_output(marked);
    for (int i = graph.node_size() - 1; i > at; --i)
      graph.mutable_node()->SwapElements(i, i - 1);
    if (!proto::opsetVersion(model, "mpt")) {
      OperatorSetIdProto &opset = *model.add_opset_import();
      opset.set_domain("mpt");
      opset.set_version(1);
    }
    return success();
  }

  void describe() {
    size_t gradients = roles.gradients.size(), next = roles.next.size();
    TrainingForm &form = roles.form;
    form.form = "joint graph";
    form.loss = "'" + roles.loss + "'";
    if (gradients)
      form.gradients = "of " + std::to_string(gradients) + " tensors" +
                       (roles.seed.empty() ? "" : " from seed '" + roles.seed + "'");
    size_t updates = llvm::count_if(roles.next, [&](const auto &entry) {
      return roles.gradients.empty() || llvm::any_of(roles.gradients, [&](const auto &gradient) {
               return gradient.getValue() == entry.getValue();
             });
    });
    roles.updates = updates && !roles.derived;
    form.optimizer = updates ? "operators of the file" : roles.optimizer;
    if (gradients && next > updates)
      form.state = "of " + std::to_string(next - updates) + " tensors";
  }

  ModelProto &model;
  GraphProto &graph;
  const ImportOptions &options;
  Location loc;
  llvm::StringSet<> states;        ///< initializers
  llvm::StringMap<int32_t> copies; ///< weights with a 16-bit copy -> their type
  proto::JointRoles roles;
};

} // namespace

FailureOr<proto::JointRoles> proto::takeJoint(ModelProto &model, const ImportOptions &options, Location loc) {
  return JointReader(model, options, loc).run();
}

void proto::addZeros(const GraphProto &graph, const JointRoles &roles, std::vector<TensorProto> &initializers) {
  for (const ValueInfoProto &input : graph.input()) {
    if (!roles.zeros.contains(input.name()))
      continue;
    TensorProto &tensor = initializers.emplace_back();
    tensor.set_name(input.name());
    tensor.set_data_type(input.type().tensor_type().elem_type());
    for (const auto &dim : input.type().tensor_type().shape().dim())
      tensor.add_dims(dim.dim_value());
  }
}

/// Adds to the form the other states, which are carried from step to step or never change.
static void describeStates(ModuleOp module, const proto::JointRoles &roles, TrainingForm &form) {
  llvm::StringSet<> renewed;
  for (const auto &next : roles.next)
    renewed.insert(next.getValue());
  size_t statistics = 0, frozen = 0, updated = 0;
  for (auto state : module.getOps<train::StateOp>()) {
    updated += state.getRole() == train::Role::parameter && !state.getFrozen() && renewed.contains(state.getSymName());
    statistics += state.getRole() == train::Role::statistic && !renewed.contains(state.getTensorName());
    frozen += state.getRole() == train::Role::parameter && state.getFrozen();
  }
  if (roles.gradients.empty() && updated) {
    form.gradients = "of " + std::to_string(updated) + " tensors";
    if (size_t others = roles.next.size() - updated)
      form.state = "of " + std::to_string(others) + " tensors";
  }
  for (auto [count, what] : {std::pair(statistics, " running statistic"), std::pair(frozen, " frozen parameter")})
    if (count)
      form.state += (form.state.empty() ? "of " : ", of ") + std::to_string(count) + what + (count == 1 ? "" : "s");
}

TrainingForm proto::formOfNodes(const GraphProto &graph) {
  llvm::StringSet<> states;
  for (const TensorProto &tensor : graph.initializer())
    states.insert(tensor.name());
  for (const ValueInfoProto &input : graph.input())
    states.insert(input.name());
  llvm::StringMap<std::string> ofGradients, ofNext;
  for (const ValueInfoProto &output : graph.output()) {
    StringRef name = output.name();
    if (StringRef of = name; of.consume_back(gradientSuffix) && states.contains(of))
      ofGradients[name] = of.str();
    if (StringRef of = name; of.consume_back(nextSuffix) && states.contains(of))
      ofNext[name] = of.str();
  }
  proto::takeCustomaryNames(graph, ofGradients, ofNext);
  size_t gradients = ofGradients.size(), next = ofNext.size();
  size_t accumulators = llvm::count_if(graph.node(), isAccumulator);
  TrainingForm form;
  for (const ValueInfoProto &output : graph.output()) {
    bool free = !ofGradients.contains(output.name()) && !ofNext.contains(output.name());
    if (free && isScalarFloat(output) && (form.loss.empty() || output.name() == "loss"))
      form.loss = "'" + output.name() + "'";
  }
  if (gradients + next + accumulators == 0)
    return {};
  form.form = accumulators ? "ONNX Runtime artifacts" : "joint graph";
  if (gradients + accumulators)
    form.gradients = "of " + std::to_string(gradients + accumulators) + " tensors";
  if (next)
    form.state = "of " + std::to_string(next) + " tensors";
  return form;
}

void proto::noteRoles(ModuleOp module, const JointRoles &roles) {
  Builder builder(module.getContext());
  auto dictionary = [&](const llvm::StringMap<std::string> &map) {
    NamedAttrList entries;
    for (const auto &entry : map)
      entries.set(entry.getKey(),
                  FlatSymbolRefAttr::get(builder.getContext(), train::TrainDialect::symbolOf(entry.getValue())));
    return entries.getDictionary(builder.getContext());
  };
  NamedAttrList entries;
  entries.set("loss", builder.getStringAttr(roles.loss));
  entries.set("backward", builder.getStringAttr(roles.derived ? "derived" : "file"));
  entries.set("gradients", dictionary(roles.gradients));
  entries.set("next", dictionary(roles.next));
  if (roles.seedIsNamed)
    entries.set("seed", builder.getStringAttr(roles.seed));
  if (!roles.optimizer.empty())
    entries.set("optimizer", builder.getStringAttr(roles.optimizer));
  if (roles.updates)
    entries.set("updates", builder.getUnitAttr());
  if (roles.clipNorm > 0.0)
    entries.set("clip_norm", builder.getF64FloatAttr(roles.clipNorm));
  if (!roles.rate.empty())
    entries.set("learning_rate", builder.getStringAttr(roles.rate));
  module->setAttr(mpt::onnx::kTrainingRoles, entries.getDictionary(builder.getContext()));
}

void proto::noteForm(ModuleOp module, const JointRoles &roles) {
  TrainingForm form = roles.form;
  describeStates(module, roles, form);
  note(module, form);
}
