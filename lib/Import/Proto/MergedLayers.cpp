// SPDX-License-Identifier: Apache-2.0
// The layers that a merged tensor stands for, by the nodes that read it and the tensors beside it there.
#include "Merged.h"

#include "../ExporterNames.h"
#include "Computed.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::proto;
using namespace ::onnx;

/// Bytes of all copies at most: a file that repeats itself must not grow without end.
constexpr int64_t mostCloned = int64_t(1) << 31;
/// So many views, biases and scales may be between a layer's product and a bias.
constexpr unsigned mostSteps = 8;

bool MergedTensors::isOfModule(const TensorProto &tensor) const {
  auto known = declared.find(tensor.name());
  return known != declared.end() && known->second != Declared::Other;
}

bool MergedTensors::cuts(const MergedUse &use) const {
  auto isKnown = [&](const std::string &part) { return lengthOf(part) > 0; };
  return use.operand == 0 && use.node->domain().empty() &&
         (use.node->op_type() == "Split" || use.node->op_type() == "Slice") &&
         llvm::all_of(use.node->output(), isKnown);
}

int64_t MergedTensors::lengthOf(StringRef value) const {
  const ValueInfoProto *type = types.lookup(value);
  const TypeProto::Tensor *tensor = type ? &type->type().tensor_type() : nullptr;
  bool isVector = tensor && tensor->elem_type() == TensorProto::FLOAT && tensor->shape().dim_size() == 1;
  return isVector ? tensor->shape().dim(0).dim_value() : 0;
}

MergedTensors::Layers MergedTensors::layersOf(const TensorProto &tensor) {
  Layers layers;
  SmallVector<MergedUse> uses = usesOf(tensor);
  SmallVector<Beside> besides = llvm::map_to_vector(uses, [&](const MergedUse &use) { return besideOf(use); });
  bool named = hasNames(tensor, uses);
  SmallVector<std::string> keys;
  for (auto [i, use] : llvm::enumerate(uses)) {
    StringRef name = use.alias.empty() ? StringRef(tensor.name()) : StringRef(use.alias);
    bool byName = named && isParameterName(name) && besides[i].weight.empty();
    std::string argument = argumentOf(use);
    keys.push_back(!argument.empty() ? argument : byName ? name.str() : layerOf(i, uses, besides));
  }
  tieBeyondModule(tensor, uses, keys);
  for (auto [use, key] : llvm::zip_equal(uses, keys))
    layers[names.insert(key).first->getKey()].push_back(use);
  return layers;
}

void MergedTensors::tieBeyondModule(const TensorProto &tensor, ArrayRef<MergedUse> uses,
                                    MutableArrayRef<std::string> keys) const {
  if (places.empty() || !isOfModule(tensor))
    return;
  std::map<std::string, std::vector<size_t>> byScope;
  for (auto [i, use] : llvm::enumerate(uses))
    if (argumentOf(use).empty())
      byScope[scopeOf(*use.node)].push_back(i);
  for (const auto &[scope, of] : byScope) {
    llvm::StringSet<> layers;
    for (size_t i : of)
      layers.insert(keys[i]);
    if (layers.size() > std::max<size_t>(namesIn(scope, tensor.name(), /*deep=*/true).size(), 1))
      for (size_t i : of)
        keys[i] = keys[of.front()];
  }
}

MergedTensors::Layers MergedTensors::clonesOf(const TensorProto &tensor) {
  if (isNumber(tensor))
    return {};
  SmallVector<MergedUse> uses = usesOf(tensor);
  llvm::StringSet<> shapes;
  SmallVector<std::string> numbers;
  for (const MergedUse &use : uses) {
    // Else it may be a mask, or a constant of arithmetic.
    bool isLayers = operands.isWeight(*use.node, use.operand) || operands.isFunction(*use.node, use.operand);
    if (!isLayers && besideOf(use).weight.empty())
      return {};
    std::string shape = use.node->op_type() + std::to_string(use.operand), number, scope = scopeOf(*use.node);
    for (StringRef part : llvm::split(scope, '.')) {
      bool isNumber = !part.empty() && llvm::all_of(part, llvm::isDigit);
      (isNumber ? number : shape) += ("." + part).str();
      shape += isNumber ? ".#" : "";
    }
    shapes.insert(shape);
    numbers.push_back(std::move(number));
  }
  // A tensor that is called after another module than any that reads it is one of them all on purpose.
  bool onPurpose = isElsewhere(tensor.name(), uses), numbered = shapes.size() == 1 && !onPurpose;
  bool alike = !onPurpose && uses.size() > 1 && isSplat(tensor);
  bool oneBias = haveOneBias(uses);
  Layers layers;
  for (auto [use, number] : llvm::zip_equal(uses, numbers)) {
    // A name that the exporter has made says nothing of a module.
    bool named = use.alias.find("::") == std::string::npos && !isGeneratedName(use.alias);
    std::string key = (named ? use.alias : "") + "|" + (alike ? scopeOf(*use.node) : numbered ? number : "");
    if (oneBias)
      key = "";
    layers[names.insert(key).first->getKey()].push_back(use);
  }
  auto bytes = static_cast<int64_t>(tensor.ByteSizeLong() * layers.size());
  if (bytes > mostCloned - cloned)
    return {};
  cloned += layers.size() > 1 ? bytes : 0;
  return layers;
}

std::string MergedTensors::biasBeside(const MergedUse &use) const {
  SmallVector<const NodeProto *> nodes{use.node};
  for (const MergedUse &reader : readers.lookup(use.node->output(0)))
    if (reader.node->op_type() == "Add")
      nodes.push_back(reader.node);
  for (const NodeProto *node : nodes)
    for (const std::string &input : node->input())
      if (const TensorProto *tensor = tensors.lookup(originOf(input));
          tensor && isVector(*tensor) && isParameterName(input))
        return input;
  return "";
}

bool MergedTensors::haveOneBias(ArrayRef<MergedUse> uses) const {
  bool hasAliases = llvm::any_of(uses, [](const MergedUse &use) { return !use.alias.empty(); });
  std::string bias = hasAliases ? biasBeside(uses.front()) : "";
  return !bias.empty() && llvm::all_of(uses, [&](const MergedUse &use) { return biasBeside(use) == bias; });
}

bool MergedTensors::isElsewhere(StringRef name, ArrayRef<MergedUse> uses) const {
  return name.contains('.') &&
         llvm::none_of(uses, [&](const MergedUse &use) { return isIn(name, scopeOf(*use.node)); });
}

std::string MergedTensors::modulesOf(const TensorProto &tensor) {
  llvm::StringSet<> scopes, kinds;
  std::string text;
  SmallVector<MergedUse> uses = usesOf(tensor);
  for (const MergedUse &use : uses) {
    if (!operands.contracts(*use.node, use.operand))
      return "";
    kinds.insert(use.node->op_type());
    std::string scope = scopeOf(*use.node);
    if (!scope.empty() && scopes.insert(scope).second)
      text += (text.empty() ? "" : ", ") + scope;
  }
  bool onPurpose = isElsewhere(tensor.name(), uses) || haveOneBias(uses);
  return scopes.size() > 1 && kinds.size() == 1 && !onPurpose ? text : "";
}

std::string MergedTensors::weightOf(const NodeProto &node, int but) const {
  for (auto [i, input] : llvm::enumerate(node.input())) {
    const TensorProto *tensor = static_cast<int>(i) == but ? nullptr : tensors.lookup(originOf(input));
    if (tensor && !isVector(*tensor) && tensor->dims_size() > 1 && operands.isWeight(node, static_cast<int>(i)))
      return tensor->name();
  }
  return "";
}

std::string MergedTensors::originOf(std::string name) const {
  for (size_t steps = 0; steps < producers.size(); ++steps) {
    const NodeProto *node = producers.lookup(name);
    // An alias that got a tensor of its own stands for nothing else.
    if (!node || node->op_type() != "Identity" || node->input_size() != 1 || tensors.contains(name))
      break;
    name = node->input(0);
  }
  return name;
}

Beside MergedTensors::besideOf(const MergedUse &use) const {
  if (std::string weight = weightOf(*use.node, use.operand); !weight.empty())
    return {weight, use.node};
  std::string scope = scopeOf(*use.node);
  for (int i = 0; i < use.node->input_size(); ++i) {
    std::string value = i == use.operand ? "" : use.node->input(i);
    for (unsigned steps = 0; steps < mostSteps && !value.empty(); ++steps) {
      const NodeProto *made = producers.lookup(value);
      std::string weight = made ? weightOf(*made, -1) : "";
      if (!weight.empty() && (scope.empty() || isWithin(scopeOf(*made), scope)))
        return {weight, made};
      value = made && weight.empty() ? throughOf(*made) : "";
    }
  }
  return {};
}

std::string MergedTensors::throughOf(const NodeProto &node) const {
  if (node.input_size() > 0 && moves(node.domain(), node.op_type()))
    return node.input(0);
  if (node.input_size() != 2 || !operands.mayTrain(node, 0) || operands.contracts(node, 0))
    return "";
  auto isBeside = [&](int i) {
    const TensorProto *tensor = tensors.lookup(originOf(node.input(i)));
    const NodeProto *made = producers.lookup(node.input(i));
    return tensor ? isVector(*tensor) || isNumber(*tensor) : made && made->op_type() == "Constant";
  };
  return isBeside(1) ? node.input(0) : isBeside(0) ? node.input(1) : "";
}

std::string MergedTensors::layerOf(size_t index, ArrayRef<MergedUse> uses, ArrayRef<Beside> besides) const {
  const MergedUse &use = uses[index];
  const Beside &beside = besides[index];
  std::string scope = scopeOf(*use.node);
  std::string layer = !beside.weight.empty() ? beside.weight
                      : !scope.empty()       ? "/" + scope + "|" + use.node->op_type()
                                             : "#" + std::to_string(reinterpret_cast<uintptr_t>(use.node));
  unsigned before = 0;
  for (size_t i = 0; i < index; ++i)
    before += uses[i].node == use.node || (beside.product && besides[i].product == beside.product);
  return before ? layer + "|" + std::to_string(before) : layer;
}

std::string MergedTensors::scopeOf(const NodeProto &node) const {
  if (std::optional<StringRef> module = exportedModule(node))
    return module->str();
  StringRef path = node.name();
  if (!path.consume_front("/"))
    return "";
  SmallVector<StringRef> parts;
  path.rsplit('/').first.split(parts, '/');
  auto within = [](const std::string &outer, StringRef inner) {
    return outer.empty() ? inner.str() : (outer + ".").append(inner);
  };
  std::string scope;
  for (StringRef part : ArrayRef(parts).take_front(path.contains('/') ? parts.size() : 0)) {
    // A module that is called again gets a number: norm, norm_1.
    auto [base, number] = part.rsplit('_');
    std::string plain = within(scope, base);
    bool again = !number.empty() && llvm::all_of(number, [](char c) { return llvm::isDigit(c); }) && knowsScope(plain);
    scope = again ? plain : within(scope, part);
  }
  return scope;
}
