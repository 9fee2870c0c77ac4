// SPDX-License-Identifier: Apache-2.0
// Training information of other producers: gradients by request, the standard's optimizers, several algorithms.
#include "Proto.h"

#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

/// Each algorithm gets the model's nodes before its own, so that their number multiplies the size of a file.
constexpr int mostAlgorithms = 64;

using Bindings = google::protobuf::RepeatedPtrField<StringStringEntryProto>;

bool usesTrainingDomain(const GraphProto &graph) {
  return llvm::any_of(graph.node(), [](const NodeProto &node) { return proto::isTrainingOperator(node); });
}

/// Other names for tensors, in a graph and its subgraphs.
class Renaming {
public:
  void add(StringRef from, std::string to) { names[from] = std::move(to); }
  bool empty() const { return names.empty(); }

  void apply(std::string &name) const {
    if (auto found = names.find(name); found != names.end())
      name = found->second;
  }
  void apply(GraphProto &graph) const {
    for (TensorProto &tensor : *graph.mutable_initializer())
      apply(*tensor.mutable_name());
    for (auto *values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
      for (ValueInfoProto &value : *values)
        apply(*value.mutable_name());
    for (NodeProto &node : *graph.mutable_node()) {
      for (auto *list : {node.mutable_input(), node.mutable_output()})
        for (std::string &name : *list)
          apply(name);
      for (AttributeProto &attribute : *node.mutable_attribute())
        applyTo(attribute, proto::isTrainingOperator(node));
    }
  }
  void apply(Bindings &bindings) const {
    for (StringStringEntryProto &binding : bindings) {
      apply(*binding.mutable_key());
      apply(*binding.mutable_value());
    }
  }

private:
  void applyTo(AttributeProto &attribute, bool namesTensors) const {
    if (attribute.has_g())
      apply(*attribute.mutable_g());
    if (!namesTensors)
      return;
    for (std::string &name : *attribute.mutable_strings())
      apply(name);
    if (attribute.name() == "y")
      apply(*attribute.mutable_s());
  }

  llvm::StringMap<std::string> names;
};

/// Names that mean one thing in the whole file.
class FileNames {
public:
  explicit FileNames(const GraphProto &graph) { enter(graph); }

  /// Names of tensors that another algorithm has too get a number.
  Renaming separate(const GraphProto &algorithm, int number) {
    Renaming result;
    for (const TensorProto &tensor : algorithm.initializer()) {
      if (!taken.contains(tensor.name()) || number == 0)
        continue;
      std::string fresh = tensor.name();
      for (int i = number; taken.contains(fresh); ++i)
        fresh = tensor.name() + "." + std::to_string(i);
      result.add(tensor.name(), fresh);
    }
    return result;
  }
  void enter(const GraphProto &graph) {
    for (const TensorProto &tensor : graph.initializer())
      taken.insert(tensor.name());
    for (const ValueInfoProto &input : graph.input())
      taken.insert(input.name());
    for (const NodeProto &node : graph.node())
      for (const std::string &output : node.output())
        taken.insert(output);
  }

private:
  llvm::StringSet<> taken;
};

/// The roles of the tensors of one algorithm with the model's graph before it.
class StateRoles {
public:
  StateRoles(const GraphProto &graph, const GraphProto &algorithm, proto::StepInfo &states) : states(states) {
    for (const GraphProto *part : {&graph, &algorithm}) {
      for (const TensorProto &tensor : part->initializer())
        types[tensor.name()] = tensor.data_type();
      for (const NodeProto &node : part->node()) {
        if (node.op_type() == "Identity" && node.domain().empty() && node.input_size() == 1 && node.output_size() == 1)
          sources[node.output(0)] = node.input(0);
        if (node.op_type() == "BatchNormalization" && node.input_size() == 5)
          for (int i : {3, 4})
            statistics.insert(node.input(i));
      }
    }
    for (const NodeProto &node : algorithm.node())
      if (proto::isTrainingOperator(node))
        enter(node);
  }

  /// State that is bound; without a role by an operator it is a statistic, a counter or optimizer state.
  void bind(StringRef key) {
    train::Role role = statistics.contains(key) ? train::Role::statistic
                       : types.lookup(key) == TensorProto::INT64 || types.lookup(key) == TensorProto::INT32
                           ? train::Role::counter
                           : train::Role::slot;
    set(key, role);
  }

private:
  StringRef rootOf(StringRef name) const {
    for (size_t steps = 0; steps <= sources.size(); ++steps) {
      auto found = sources.find(name);
      if (found == sources.end())
        break;
      name = found->second;
    }
    return name;
  }
  void set(StringRef name, train::Role role, StringRef of = {}) {
    StringRef root = rootOf(name);
    if (!types.contains(root))
      return;
    auto [entry, fresh] = states.states.try_emplace(root);
    // A parameter is one for whatever else it is used.
    if (!fresh && (entry->second.role == train::Role::parameter || role != train::Role::parameter))
      return;
    entry->second.name = root.str();
    entry->second.role = role;
    entry->second.of = of.str();
  }

  void enter(const NodeProto &node) {
    if (node.op_type() == "Gradient") {
      for (const AttributeProto &attribute : node.attribute())
        if (attribute.name() == "xs")
          for (const std::string &x : attribute.strings())
            set(x, train::Role::parameter);
      return;
    }
    int kinds = node.op_type() == "Adam" ? 4 : 3, count = (node.input_size() - 2) / kinds;
    if (node.input_size() < 2 + kinds)
      return;
    set(node.input(1), train::Role::counter);
    for (int i = 0; i < count; ++i)
      set(node.input(2 + i), train::Role::parameter);
    for (int i = 2 * count; i < kinds * count; ++i)
      set(node.input(2 + i), train::Role::slot, rootOf(node.input(2 + i % count)));
  }

  proto::StepInfo &states;
  llvm::StringMap<int32_t> types;
  llvm::StringMap<std::string> sources; ///< of Identity, by result
  llvm::StringSet<> statistics;
};

std::string settingsOf(const NodeProto &node) {
  std::string text;
  llvm::raw_string_ostream out(text);
  out << node.op_type();
  StringRef separator = " (";
  for (const AttributeProto &attribute : node.attribute()) {
    out << separator << attribute.name() << " ";
    if (attribute.type() == AttributeProto::FLOAT)
      out << llvm::format("%g", attribute.f());
    else
      out << attribute.s();
    separator = ", ";
  }
  if (node.attribute_size() > 0)
    out << ")";
  return text;
}

/// Adds the gradients and optimizers of one algorithm.
void describe(const GraphProto &algorithm, TrainingForm &form, int64_t &gradients) {
  auto append = [](std::string &list, const std::string &text) {
    if (!StringRef(list).contains(text))
      list += (list.empty() ? "" : ", ") + text;
  };
  for (const NodeProto &node : algorithm.node()) {
    if (!proto::isTrainingOperator(node))
      continue;
    if (node.op_type() != "Gradient") {
      append(form.optimizer, settingsOf(node));
      continue;
    }
    for (const AttributeProto &attribute : node.attribute()) {
      if (attribute.name() == "y")
        append(form.loss, "'" + attribute.s() + "'");
      if (attribute.name() == "xs")
        gradients += attribute.strings_size();
    }
  }
}

/// Graphs that set up state, as one.
void addInitialization(TrainingInfoProto &info, int number, std::optional<proto::Algorithm> &all) {
  if (!info.has_initialization() || info.initialization_binding_size() == 0)
    return;
  GraphProto &graph = *info.mutable_initialization();
  Renaming own;
  std::string prefix = "initialization." + std::to_string(number) + "/";
  for (const TensorProto &tensor : graph.initializer())
    own.add(tensor.name(), prefix + tensor.name());
  for (const NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      if (!output.empty())
        own.add(output, prefix + output);
  own.apply(graph);
  if (!all) {
    all.emplace();
    all->name = "initialize";
  }
  for (const StringStringEntryProto &binding : info.initialization_binding()) {
    std::string value = binding.value();
    own.apply(value);
    all->updates[value] = binding.key();
  }
  GraphProto &whole = *all->model.mutable_graph();
  whole.set_name("initialize");
  whole.mutable_node()->MergeFrom(graph.node());
  whole.mutable_initializer()->MergeFrom(graph.initializer());
  whole.mutable_output()->MergeFrom(graph.output());
}

/// A name for a step: the graph's where it is one, else by number.
std::string stepName(StringRef graph, int number, const std::vector<proto::Algorithm> &before) {
  bool isWord = !graph.empty() && llvm::all_of(graph, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  bool isTaken =
      llvm::is_contained({"step", "gradients", "evaluate", "predict", "accumulate", "forward", "initialize"}, graph) ||
      llvm::any_of(before, [&](const proto::Algorithm &other) { return other.name == graph; });
  return isWord && !isTaken ? graph.str() : "step_" + std::to_string(number);
}

} // namespace

FailureOr<proto::Algorithms> proto::takeAlgorithms(ModelProto &model, Location loc) {
  bool ours = llvm::any_of(model.metadata_props(), [](const StringStringEntryProto &entry) {
    return entry.key() == mpt::onnx::ONNXDialect::kStatesKey;
  });
  int count = model.training_info_size();
  bool asks = count > 1 || (count == 1 && usesTrainingDomain(model.training_info(0).algorithm()));
  if (ours || !asks)
    return Algorithms();
  if (count > mostAlgorithms)
    return emitError(loc) << "expected at most " << mostAlgorithms << " algorithms in training information, got "
                          << count;
  Algorithms result;
  FileNames known(model.graph());
  int64_t gradients = 0, bound = 0;
  for (auto [number, info] : llvm::enumerate(*model.mutable_training_info())) {
    GraphProto &algorithm = *info.mutable_algorithm();
    if (Renaming names = known.separate(algorithm, static_cast<int>(number)); !names.empty()) {
      names.apply(algorithm);
      names.apply(*info.mutable_update_binding());
      for (StringStringEntryProto &binding : *info.mutable_initialization_binding())
        names.apply(*binding.mutable_key());
    }
    known.enter(algorithm);
    describe(algorithm, result.form, gradients);
    StateRoles roles(model.graph(), algorithm, result.states);
    Algorithm step;
    step.name = stepName(algorithm.name(), static_cast<int>(number), result.steps);
    for (const StringStringEntryProto &binding : info.update_binding()) {
      step.updates[binding.value()] = binding.key();
      roles.bind(binding.key());
      ++bound;
    }
    addInitialization(info, static_cast<int>(number), result.initialization);
    step.model.mutable_graph()->Swap(&algorithm);
    result.steps.push_back(std::move(step));
  }
  result.form.form = count == 1 ? "TrainingInfoProto" : "TrainingInfoProto of " + std::to_string(count) + " algorithms";
  if (gradients)
    result.form.gradients = "of " + std::to_string(gradients) + " tensors by Gradient";
  result.form.state = std::to_string(bound) + " tensors bound";
  if (result.initialization)
    result.form.state += ", " + std::to_string(result.initialization->updates.size()) + " initialized";
  model.clear_training_info();
  return result;
}
