// SPDX-License-Identifier: Apache-2.0
// Names of the tensors that take the place of a merged one, as the exporter's module would call them, and the tensors.
#include "Merged.h"

#include "../ExporterNames.h"
#include "Sites.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::proto;
using namespace ::onnx;

bool MergedTensors::knowsScope(const std::string &scope) const {
  if (scopes.empty())
    visitGraphs(std::as_const(graph), [&](const GraphProto &part) {
      for (const NodeProto &node : part.node()) {
        std::string path = node.name();
        std::replace(path.begin(), path.end(), '/', '.');
        for (size_t end = path.find('.', 1); end != std::string::npos; end = path.find('.', end + 1))
          scopes.insert(StringRef(path).slice(1, end));
      }
    });
  return scopes.contains(scope);
}

std::vector<std::string> MergedTensors::namesIn(StringRef scope, StringRef merged, bool deep) const {
  std::map<size_t, std::string> found = missing;
  auto add = [&](StringRef name) {
    if (auto place = places.find(name); place != places.end())
      found[place->second] = name.str();
  };
  add(merged);
  if (auto from = origins.find(merged); from != origins.end())
    llvm::for_each(from->second, add);
  std::vector<std::string> result;
  for (const auto &[place, name] : found) {
    StringRef module = StringRef(name).contains('.') ? StringRef(name).rsplit('.').first : StringRef();
    if (module == scope || (deep && (scope.empty() || isIn(module, scope))))
      result.push_back(name);
  }
  return result;
}

std::string MergedTensors::argumentOf(const MergedUse &use) const {
  std::vector<StringRef> arguments = exportedArguments(*use.node);
  auto count = static_cast<size_t>(use.node->input_size());
  // A bias may come first, as in addmm.
  for (auto [i, argument] : llvm::enumerate(arguments))
    for (size_t k = 0; k < count; ++k)
      if (k != i && use.node->input(static_cast<int>(k)) == argument)
        return "";
  if (arguments.size() == count)
    return placeholders.lookup(arguments[static_cast<size_t>(use.operand)]);
  SmallVector<std::string> parameters;
  for (StringRef argument : arguments)
    if (auto known = placeholders.find(argument); known != placeholders.end())
      parameters.push_back(known->second);
  auto isTensor = [&](const std::string &input) { return tensors.contains(originOf(input)); };
  if (parameters.empty() || parameters.size() > 2 || llvm::count_if(use.node->input(), isTensor) != 1)
    return "";
  bool isFirst = operands.isWeight(*use.node, use.operand) || use.node->op_type() == "Mul";
  return isFirst ? parameters.front() : parameters.back();
}

std::string MergedTensors::exportedName(const MergedUse &use, StringRef merged, bool own) const {
  if (std::string name = argumentOf(use); !name.empty())
    return name;
  std::vector<std::string> found = namesIn(scopeOf(*use.node), own ? merged : "");
  return found.size() == 1 ? found.front() : "";
}

std::string MergedTensors::nameFor(StringRef layer, const MergedUse &use, StringRef merged, bool own) const {
  std::string scope = scopeOf(*use.node);
  bool scales = use.node->op_type() == "Mul" || (use.operand == 1 && use.node->input_size() > 2) ||
                !isVector(*tensors.lookup(merged));
  if (!places.empty()) // a value that was computed is no parameter
    return isMadeInCode(merged) ? "" : exportedName(use, merged, own);
  auto from = origins.find(layer);
  StringRef base = from != origins.end() && from->second.size() == 1 ? StringRef(from->second.front()) : layer;
  auto [module, which] = base.rsplit('.');
  if (!scales && which.consume_front("weight_")) // of a recurrence
    return (module + ".bias_" + which).str();
  if (!base.consume_back(".weight"))
    base = scope;
  if (base.empty())
    return "";
  StringRef last = merged.substr(merged.rfind('.') + 1);
  return (base + "." + (merged.contains('.') ? last : scales ? "weight" : "bias")).str();
}

std::string MergedTensors::cloneName(const MergedUse &use, StringRef merged, StringRef home, StringRef layer) const {
  if (!use.alias.empty())
    return use.alias;
  std::string scope = scopeOf(*use.node);
  return isIn(merged, home) && !scope.empty() ? (scope + merged.drop_front(home.size())).str()
                                              : nameFor(layer, use, merged, /*own=*/false);
}

bool MergedTensors::isIn(StringRef name, StringRef scope) {
  return !scope.empty() && name.consume_front(scope) && name.starts_with(".");
}

void MergedTensors::separate(TensorProto &tensor, Layers &layers, bool clones) {
  const std::string &merged = tensor.name();
  auto from = origins.find(merged);
  auto isOwner = [&](auto &layer) {
    const MergedUse &use = layer.second.front();
    if (clones)
      return isIn(merged, scopeOf(*use.node));
    std::string name = layer.first == merged ? merged : nameFor(layer.first, use, merged, /*own=*/true);
    return name == merged || (from != origins.end() && llvm::is_contained(from->second, name));
  };
  auto owner = llvm::find_if(layers, isOwner);
  StringRef kept = owner == layers.end() ? layers.front().first : owner->first;
  std::string home = scopeOf(*layers.lookup(kept).front().node);
  for (auto &[layer, all] : layers) {
    if (layer == kept)
      continue;
    llvm::MapVector<StringRef, SmallVector<MergedUse>> parts;
    for (const MergedUse &use : all)
      parts[use.part].push_back(use);
    for (auto &[part, uses] : parts) {
      const MergedUse &first = uses.front();
      bool named = clones || layer == first.alias;
      giveOwn(tensor, uses,
              named ? cloneName(first, merged, home, layer) : nameFor(layer, first, merged, /*own=*/false));
    }
  }
}

void MergedTensors::giveOwn(const TensorProto &tensor, ArrayRef<MergedUse> uses, std::string name) {
  const std::string &merged = tensor.name();
  if (auto place = places.find(name); place != places.end())
    missing.erase(place->second);
  // An alias gives way: the tensor that it stood for has its name.
  const NodeProto *alias = producers.lookup(name);
  bool stands =
      alias && isAlias(*alias) && originOf(name) == merged && !fixed.contains(name) && !dropped.contains(name);
  std::string inFile = taken.take(name, stands ? name : merged);
  if (stands)
    dropped.insert(name);
  else
    name = inFile;
  TensorProto own = uses.front().part.empty() ? tensor : partOf(tensor, lengthOf(uses.front().part));
  own.set_name(name);
  own.clear_metadata_props(); // copies are of the one that was there
  if (uses.front().part.empty())
    copySite(tensor, own);
  else
    noteNew(own);
  noteName(own, inFile);
  for (const MergedUse &use : uses) {
    noteUse(own, *use.node, use.operand);
    const std::string &before = !use.part.empty() ? use.part : use.alias.empty() ? merged : use.alias;
    llvm::erase_if(readers[before],
                   [&](const MergedUse &other) { return other.node == use.node && other.operand == use.operand; });
    readers[name].push_back({use.node, use.operand});
    use.node->set_input(use.operand, name);
  }
  TensorProto &added = addInitializer(model, std::move(own));
  tensors[name] = &added;
  if (auto known = declared.find(merged); known != declared.end())
    declared[name] = Declared(known->second);
  separated[name] = merged;
}

TensorProto MergedTensors::partOf(const TensorProto &tensor, int64_t length) const {
  TensorProto part;
  part.set_data_type(tensor.data_type());
  part.add_dims(length);
  std::string all = rawBytes(tensor, loc.getContext());
  part.set_raw_data(all.substr(0, static_cast<size_t>(length) * sizeof(float)));
  return part;
}

void MergedTensors::dropAliases() {
  visitGraphs(graph, [&](GraphProto &part) {
    for (NodeProto &node : *part.mutable_node())
      for (std::string &input : *node.mutable_input())
        if (dropped.contains(input) && !separated.contains(input))
          input = originOf(input);
    auto &nodes = *part.mutable_node();
    nodes.erase(llvm::remove_if(nodes,
                                [&](const NodeProto &node) {
                                  return node.op_type() == "Identity" && node.output_size() == 1 &&
                                         dropped.contains(node.output(0));
                                }),
                nodes.end());
  });
}
