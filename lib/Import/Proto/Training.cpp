// SPDX-License-Identifier: Apache-2.0
// Training steps in files: which outputs are the new values of which initializers, and which of these are parameters.
#include "Proto.h"

#include "../ExporterNames.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

LogicalResult readStates(StringRef text, proto::StepInfo &step, Location loc) {
  llvm::Expected<llvm::json::Value> parsed = llvm::json::parse(text);
  const llvm::json::Object *all = parsed ? parsed->getAsObject() : nullptr;
  if (!all) {
    if (!parsed)
      llvm::consumeError(parsed.takeError());
    return emitError(loc) << "expected metadata 'mpt.states' to be a JSON object";
  }
  for (const auto &[name, value] : *all) {
    const llvm::json::Object *entry = value.getAsObject();
    std::optional<StringRef> roleName = entry ? entry->getString("role") : std::nullopt;
    std::optional<train::Role> role = roleName ? train::symbolizeRole(*roleName) : std::nullopt;
    if (!role)
      return emitError(loc) << "expected a role of state '" << StringRef(name) << "' in metadata 'mpt.states'"
                            << (roleName ? ", got '" + roleName->str() + "'" : std::string(", got none"));
    proto::StepState state;
    state.name = StringRef(name).str();
    state.role = *role;
    state.of = entry->getString("of").value_or("").str();
    state.frozen = entry->getBoolean("frozen").value_or(false);
    step.states[entry->getString("initializer").value_or(StringRef(name))] = state;
    if (std::optional<StringRef> next = entry->getString("next"))
      step.updates[*next] = state.name;
  }
  return success();
}

/// Appends the algorithm's graph: a training step runs both, one after the other (TrainingInfoProto in onnx.proto).
/// Of the graph's own outputs those stay that are new values.
void appendAlgorithm(GraphProto &graph, GraphProto &algorithm, const proto::StepInfo &step) {
  for (const ValueInfoProto &output : graph.output())
    if (step.updates.contains(output.name()))
      *algorithm.add_output() = output;
  graph.mutable_node()->MergeFrom(algorithm.node());
  graph.mutable_initializer()->MergeFrom(algorithm.initializer());
  graph.mutable_input()->MergeFrom(algorithm.input());
  graph.mutable_value_info()->MergeFrom(algorithm.value_info());
  graph.mutable_output()->Swap(algorithm.mutable_output());
}

bool hasRules(const GraphProto &graph, const ModelProto &model) {
  return llvm::all_of(graph.node(), [&](const NodeProto &node) {
    StringRef domain = node.domain() == "ai.onnx" ? StringRef() : StringRef(node.domain());
    return hasImportRule(domain, node.op_type()) || llvm::any_of(model.functions(), [&](const FunctionProto &function) {
             return function.name() == node.op_type() && function.domain() == node.domain();
           });
  });
}

} // namespace

FailureOr<proto::StepInfo> proto::takeStep(ModelProto &model, Location loc) {
  StepInfo step;
  for (const StringStringEntryProto &entry : model.metadata_props())
    if (entry.key() == mpt::onnx::ONNXDialect::kStatesKey && failed(readStates(entry.value(), step, loc)))
      return failure();
  bool ours = !step.states.empty();
  if (model.training_info_size() == 0)
    return step;
  if (!ours &&
      (model.training_info(0).update_binding_size() == 0 || !hasRules(model.training_info(0).algorithm(), model))) {
    emitWarning(loc) << "training information of the file is not used: it has operators that mpt does not import, or "
                        "updates nothing";
    return step;
  }
  TrainingInfoProto &info = *model.mutable_training_info(0);
  for (const StringStringEntryProto &binding : info.update_binding()) {
    auto [state, isNew] = step.states.try_emplace(binding.key());
    if (isNew)
      state->second.name = binding.key();
    step.updates[binding.value()] = state->second.name;
  }
  appendAlgorithm(*model.mutable_graph(), *info.mutable_algorithm(), step);
  model.clear_training_info();
  return step;
}

/// The names of the values that one was folded from: all, or the names that a module may give.
static std::vector<std::string> tensorsOf(StringRef names, bool all) {
  std::vector<std::string> result;
  SmallVector<StringRef> parts; // ['head.weight', 'val_14']
  names.split(parts, '\'');
  for (size_t i = 1; i < parts.size(); i += 2)
    if (all || parts[i].contains('.') || (!isGeneratedName(parts[i]) && parts[i] != "t"))
      result.push_back(parts[i].str());
  return result;
}

constexpr StringLiteral foldedKey = "pkg.onnxscript.optimizer.folded_from";

llvm::StringMap<std::vector<std::string>> proto::foldedFrom(const GraphProto &graph, bool all) {
  llvm::StringMap<std::vector<std::string>> result;
  auto read = [&](const auto &entries) {
    for (const auto &entry : entries)
      for (const StringStringEntryProto &property : entry.metadata_props())
        if (property.key() == foldedKey)
          if (std::vector<std::string> tensors = tensorsOf(property.value(), all); !tensors.empty())
            result[entry.name()] = std::move(tensors);
  };
  visitGraphs(graph, [&](const GraphProto &part) {
    read(part.value_info());
    read(part.initializer());
  });
  return result;
}

std::optional<StringRef> proto::exportedModule(const NodeProto &node) {
  for (const StringStringEntryProto &entry : node.metadata_props())
    if (entry.key() == "pkg.torch.onnx.name_scopes") {
      SmallVector<StringRef> scopes; // ['', 'encoder', 'encoder.norm', 'layer_norm']
      StringRef(entry.value()).split(scopes, '\'');
      // A module that is called again gets a number: norm, norm@1.
      return scopes.size() >= 5 ? scopes[scopes.size() - 4].split('@').first : StringRef();
    }
  return std::nullopt;
}

std::vector<StringRef> proto::exportedArguments(const NodeProto &node) {
  std::vector<StringRef> names;
  for (const StringStringEntryProto &entry : node.metadata_props())
    // %cat : [...] = call_function[...](args = ([%a, %b], 1), kwargs = {})
    if (entry.key() == "pkg.torch.onnx.fx_node") {
      SmallVector<StringRef> parts;
      StringRef(entry.value()).split("(args = (").second.split("), kwargs = ").first.split(parts, '%');
      for (StringRef part : llvm::drop_begin(parts))
        names.push_back(part.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; }));
    }
  return names;
}

constexpr StringLiteral parameterKind = "PARAMETER";

/// Visits (placeholder, tensor) of a kind in the exporter's signature, in its order; false where there is none.
static bool visitSignature(const GraphProto &graph, StringRef kind,
                           llvm::function_ref<void(StringRef, StringRef)> visitor) {
  for (const StringStringEntryProto &entry : graph.metadata_props()) {
    if (entry.key() != "pkg.torch.export.ExportedProgram.graph_signature")
      continue;
    SmallVector<StringRef> lines; // p_fc_weight: PARAMETER target='fc.weight'
    StringRef(entry.value()).split(lines, '\n');
    for (StringRef line : lines)
      if (auto [placeholder, target] = line.split((": " + kind + " target='").str()); !target.empty())
        visitor(placeholder.trim(), target.split('\'').first);
    return true;
  }
  return false;
}

llvm::StringMap<std::string> proto::exportedPlaceholders(const GraphProto &graph) {
  llvm::StringMap<std::string> names;
  visitSignature(graph, parameterKind,
                 [&](StringRef placeholder, StringRef target) { names[placeholder] = target.str(); });
  return names;
}

llvm::StringSet<> proto::exportedBuffers(const GraphProto &graph) {
  llvm::StringSet<> names;
  visitSignature(graph, "BUFFER", [&](StringRef, StringRef target) { names.insert(target); });
  return names;
}

std::optional<llvm::StringMap<size_t>> proto::exportedParameters(const GraphProto &graph) {
  llvm::StringMap<size_t> names;
  bool known = visitSignature(graph, parameterKind,
                              [&](StringRef, StringRef target) { names.try_emplace(target, names.size()); });
  return known ? std::optional(std::move(names)) : std::nullopt;
}

proto::DeclaredParameters proto::declaredParameters(const GraphProto &graph) {
  DeclaredParameters declared;
  std::optional<llvm::StringMap<size_t>> parameters = exportedParameters(graph);
  auto isNone = [&](StringRef name) { return parameters ? !parameters->contains(name) : isBufferName(name); };
  auto read = [&](const auto &entries) {
    for (const auto &entry : entries)
      for (const StringStringEntryProto &property : entry.metadata_props()) {
        if (property.key() == "pkg.torch.export.graph_signature.InputSpec.kind")
          declared[entry.name()] = property.value() == "PARAMETER" ? Declared::Parameter : Declared::Other;
        else if (property.key() == foldedKey) {
          std::vector<std::string> tensors = tensorsOf(property.value(), /*all=*/false);
          declared[entry.name()] = llvm::all_of(tensors, isNone) ? Declared::Other : Declared::Folded;
        }
      }
  };
  visitGraphs(graph, [&](const GraphProto &part) {
    read(part.value_info());
    read(part.initializer());
  });
  return declared;
}
