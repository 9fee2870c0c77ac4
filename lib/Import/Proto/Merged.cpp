// SPDX-License-Identifier: Apache-2.0
// Parameters that an exporter has merged because their first values were equal: each layer gets its own again.
// Matcher: Identity and BatchNormalization of a file.
#include "Computed.h"
#include "OperandUses.h"
#include "Proto.h"
#include "Sites.h"

#include "../ExporterNames.h"
#include "mpt/Support/NearNames.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"

#include <map>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

/// Bytes of a tensor of one value that is copied, and of all other copies, at most: a file that repeats itself must not
/// grow without end.
constexpr int64_t mostBytes = int64_t(1) << 20, mostCloned = int64_t(1) << 31;
/// So many views, biases and scales may be between a layer's product and a bias.
constexpr unsigned mostSteps = 8;

/// An operand that reads a tensor, directly or under the name that an Identity gives it, or a moved part of it.
struct Use {
  NodeProto *node;
  int operand;
  std::string alias = {};
  std::string part = {};
};

/// A matrix or filter, and the node that multiplies by it.
struct Beside {
  std::string weight;
  const NodeProto *product = nullptr;
};

class MergedTensors {
public:
  MergedTensors(ModelProto &model, const ImportOptions &options, StringRef folder, proto::DeclaredParameters &declared,
                Location loc)
      : model(model), graph(*model.mutable_graph()), options(options), folder(folder), loc(loc), operands(model),
        origins(proto::foldedFrom(graph)), declared(declared), placeholders(proto::exportedPlaceholders(graph)) {
    for (TensorProto &tensor : *graph.mutable_initializer())
      tensors[tensor.name()] = &tensor;
    proto::visitGraphs(graph, [&](GraphProto &part) { look(part); });
    lookForMissing();
  }

  FailureOr<proto::SeparatedTensors> run() {
    llvm::Regex tie("^(" + options.tie + ")$");
    SmallVector<std::string> merged;
    bool anyTied = false;
    // Matrices first: vectors beside one belong to its layer.
    for (bool vectors : {false, true})
      for (int i = 0, e = graph.initializer_size(); i < e; ++i) {
        TensorProto &tensor = *graph.mutable_initializer(i);
        auto known = declared.find(tensor.name());
        bool isBuffer = known != declared.end() && known->second == proto::Declared::Other;
        if (isBuffer || !proto::isFloat(tensor) || usesOf(tensor).size() < 2 || vectors != isBesideLayers(tensor))
          continue;
        bool tied = !options.tie.empty() && tie.match(tensor.name());
        Layers layers = vectors ? layersOf(tensor) : clonesOf(tensor);
        if (!vectors && !tied && layers.size() < 2)
          noteShared(tensor);
        if (layers.size() < 2 && (vectors || !isShared(tensor)))
          continue;
        merged.push_back(tensor.name());
        anyTied |= tied;
        if (!tied && layers.size() > 1)
          separate(tensor, layers, /*clones=*/!vectors);
      }
    if (!shared.empty())
      emitWarning(loc) << "'" << shared.front().first << "' trains as one tensor of the layers "
                       << shared.front().second
                       << (shared.size() > 1 ? ", and " + std::to_string(shared.size() - 1) + " more do so" : "")
                       << ": exporters merge tensors that are equal; export the model with weights that differ where "
                          "these are several, or say --tie='"
                       << shared.front().first << (shared.size() > 1 ? "|...'" : "'");
    if (!options.tie.empty() && options.tie != ".*" && !anyTied) // which may be nothing
      return emitError(loc) << "--tie: expected an expression that matches the name of a tensor that several layers "
                               "share, got '"
                            << options.tie << "'; "
                            << whatThereIs(options.tie, SmallVector<StringRef>(merged.begin(), merged.end()))
                            << " [mpt-no-match]";
    dropAliases();
    return std::move(separated);
  }

private:
  using Layers = llvm::MapVector<StringRef, SmallVector<Use>>;

  /// Parameters of the exporter's module that have no tensor, in the order of the module.
  void lookForMissing() {
    llvm::StringSet<> present;
    for (const auto &[value, from] : origins)
      if (tensors.contains(value))
        present.insert_range(from);
    places = proto::exportedParameters(graph).value_or(llvm::StringMap<size_t>());
    for (const auto &[name, place] : places)
      if (!taken.contains(name) && !present.contains(name))
        missing[place] = name.str();
  }

  void look(GraphProto &part) {
    for (const ValueInfoProto &value : part.value_info())
      types[value.name()] = &value;
    for (const TensorProto &tensor : part.initializer())
      taken.insert(tensor.name());
    for (const ValueInfoProto &input : part.input())
      taken.insert(input.name());
    for (const ValueInfoProto &output : part.output())
      fixed.insert(output.name());
    for (NodeProto &node : *part.mutable_node()) {
      for (const std::string &output : node.output()) {
        auto [known, isNew] = producers.try_emplace(output, &node);
        known->second = isNew ? &node : nullptr; // two branches may have a value of that name
        taken.insert(output);
      }
      for (auto [i, input] : llvm::enumerate(node.input()))
        readers[input].push_back({&node, static_cast<int>(i)});
    }
  }

  /// Elements of a small tensor; 0 of others.
  static int64_t countOf(const google::protobuf::RepeatedField<int64_t> &extents) {
    int64_t count = 1;
    for (int64_t extent : extents)
      if (extent < 1 || extent > mostBytes || __builtin_mul_overflow(count, extent, &count))
        return 0;
    return 8 * count <= mostBytes ? count : 0;
  }

  /// Floats along one axis.
  static bool isVector(const TensorProto &tensor) {
    int64_t count = countOf(tensor.dims());
    return proto::isFloat(tensor) && count > 1 && llvm::is_contained(tensor.dims(), count);
  }

  /// One value everywhere, as a bias or scale begins with. Zeros may have either sign, as in filters that
  /// exporters have multiplied by a scale of zero.
  bool isSplat(const TensorProto &tensor) const {
    TensorProto copy = tensor;
    FailureOr<ElementsAttr> values = proto::tensorAttr(copy, folder, loc);
    if (failed(values))
      return false;
    auto dense = dyn_cast<DenseElementsAttr>(*values);
    if (dense && dense.isSplat())
      return true;
    auto resource = dyn_cast<DenseResourceElementsAttr>(*values);
    AsmResourceBlob *blob = resource ? resource.getRawHandle().getBlob() : nullptr;
    ArrayRef<char> bytes = dense ? dense.getRawData() : blob ? blob->getData() : ArrayRef<char>();
    size_t width = cast<ShapedType>(values->getType()).getElementTypeBitWidth() / 8;
    if (width == 0 || bytes.size() <= width)
      return false;
    auto isZero = [&](size_t i) { return (i % width == width - 1 ? bytes[i] & 0x7f : bytes[i]) == 0; };
    return bytes.drop_front(width) == bytes.drop_back(width) ||
           llvm::all_of(llvm::seq<size_t>(0, bytes.size()), isZero);
  }

  /// Who may train the tensor; nobody where its value is read in other ways than by nodes of the graph. Where exporters
  /// have kept the names of several parameters, each reader is one's. A module's parameter of one value may be read in
  /// parts: the exporter has merged the nodes that cut it as well.
  SmallVector<Use> usesOf(const TensorProto &tensor) {
    SmallVector<Use> uses;
    struct Value {
      std::string name;
      bool isPart;
    };
    SmallVector<Value> work{{tensor.name(), false}};
    bool isModules = isOfModule(tensor), mayBeCut = isModules && isVector(tensor) && isSplat(tensor);
    for (size_t i = 0; i < work.size(); ++i) {
      auto [value, isPart] = work[i];
      if (fixed.contains(value))
        return {};
      for (const Use &use : readers.lookup(value))
        if (isAlias(*use.node))
          work.push_back({use.node->output(0), isPart});
        else if (mayBeCut && cuts(use))
          llvm::append_range(work, llvm::map_range(use.node->output(), [](auto &part) { return Value{part, true}; }));
        else
          uses.push_back({use.node, use.operand, i == 0 || isPart ? "" : value, isPart ? value : ""});
    }
    if (!hasNames(tensor, uses))
      llvm::erase_if(uses, [&](const Use &use) {
        bool isToken = isModules && use.node->op_type() == "Concat" && use.node->domain().empty();
        return !operands.mayTrain(*use.node, use.operand) && !operands.isFunction(*use.node, use.operand) && !isToken;
      });
    return uses;
  }

  static bool isAlias(const NodeProto &node) {
    return node.op_type() == "Identity" && node.domain().empty() && node.output_size() == 1;
  }

  /// By the exporter's declaration.
  bool isOfModule(const TensorProto &tensor) const {
    auto known = declared.find(tensor.name());
    return known != declared.end() && known->second != proto::Declared::Other;
  }

  /// True for cuts of an FP32 vector into vectors of lengths that the file says.
  bool cuts(const Use &use) const {
    auto isKnown = [&](const std::string &part) { return lengthOf(part) > 0; };
    return use.operand == 0 && use.node->domain().empty() &&
           (use.node->op_type() == "Split" || use.node->op_type() == "Slice") &&
           llvm::all_of(use.node->output(), isKnown);
  }

  int64_t lengthOf(StringRef value) const {
    const ValueInfoProto *type = types.lookup(value);
    const TypeProto::Tensor *tensor = type ? &type->type().tensor_type() : nullptr;
    bool isVector = tensor && tensor->elem_type() == TensorProto::FLOAT && tensor->shape().dim_size() == 1;
    return isVector ? tensor->shape().dim(0).dim_value() : 0;
  }

  /// The path of a parameter in a module.
  static bool isParameterName(StringRef name) {
    return name.contains('.') && !name.contains('/') && !name.contains("::") && !isGeneratedName(name) &&
           !isBufferName(name);
  }

  /// True where the tensor and an alias of it are called like parameters.
  static bool hasNames(const TensorProto &tensor, ArrayRef<Use> uses) {
    return isParameterName(tensor.name()) &&
           llvm::any_of(uses, [](const Use &use) { return isParameterName(use.alias); });
  }

  static bool isNumber(const TensorProto &tensor) {
    return llvm::all_of(tensor.dims(), [](int64_t extent) { return extent == 1; });
  }

  /// A scale that is one number, as in StarReLU: constants of formulas are many, and their names are the exporter's.
  /// Where it says the module's parameters, each module that lacks one reads its own.
  bool isNamedNumber(const TensorProto &tensor) {
    auto known = declared.find(tensor.name());
    bool isParameter = known != declared.end() && known->second == proto::Declared::Parameter;
    return isNumber(tensor) && ((isParameter && !missing.empty()) || hasNames(tensor, usesOf(tensor)));
  }

  /// True for tensors of one value that are no layer's weight: biases, scales, tokens and views of these.
  bool isBesideLayers(const TensorProto &tensor) {
    if (isVector(tensor) || isNamedNumber(tensor))
      return isSplat(tensor);
    SmallVector<Use> uses = usesOf(tensor);
    auto isFunction = [&](const Use &use) { return operands.isFunction(*use.node, use.operand); };
    if (isNumber(tensor)) // constants of formulas are many
      return tensor.dims_size() > 0 && llvm::any_of(uses, isFunction);
    return tensor.dims_size() > 1 && countOf(tensor.dims()) > 1 && isSplat(tensor) &&
           llvm::all_of(uses, [&](const Use &use) {
             return !operands.isWeight(*use.node, use.operand) && !besideOf(use).weight.empty();
           });
  }

  /// Uses by layer: of one matrix first, which a module may have under two names, then by the names of parameters.
  Layers layersOf(const TensorProto &tensor) {
    Layers layers;
    SmallVector<Use> uses = usesOf(tensor);
    SmallVector<Beside> besides = llvm::map_to_vector(uses, [&](const Use &use) { return besideOf(use); });
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

  /// A module that lacks fewer parameters than it has uses applies one of them several times.
  void tieBeyondModule(const TensorProto &tensor, ArrayRef<Use> uses, MutableArrayRef<std::string> keys) const {
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

  /// Layers that were one another's copies, as in torch.nn.TransformerEncoder, by a feature that tells them apart: a
  /// name of their own, which the exporter has kept as an alias, or their number in a list of modules. A tensor that
  /// was one in the module has neither. Matrices and filters of one value, as behind a norm whose scale begins
  /// with zeros, are equal by their first values: each module has its own.
  Layers clonesOf(const TensorProto &tensor) {
    if (isNumber(tensor))
      return {};
    SmallVector<Use> uses = usesOf(tensor);
    llvm::StringSet<> shapes;
    SmallVector<std::string> numbers;
    for (const Use &use : uses) {
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

  /// The name under which a layer reads its bias; empty where that is not the name of a parameter.
  std::string biasBeside(const Use &use) const {
    SmallVector<const NodeProto *> nodes{use.node};
    for (const Use &reader : readers.lookup(use.node->output(0)))
      if (reader.node->op_type() == "Add")
        nodes.push_back(reader.node);
    for (const NodeProto *node : nodes)
      for (const std::string &input : node->input())
        if (const TensorProto *tensor = tensors.lookup(originOf(input));
            tensor && isVector(*tensor) && isParameterName(input))
          return input;
    return "";
  }

  /// True of one module that is applied several times: an exporter that writes an alias for each tensor that it has
  /// merged would have written one for a second module's bias.
  bool haveOneBias(ArrayRef<Use> uses) const {
    bool hasAliases = llvm::any_of(uses, [](const Use &use) { return !use.alias.empty(); });
    std::string bias = hasAliases ? biasBeside(uses.front()) : "";
    return !bias.empty() && llvm::all_of(uses, [&](const Use &use) { return biasBeside(use) == bias; });
  }

  bool isElsewhere(StringRef name, ArrayRef<Use> uses) const {
    return name.contains('.') && llvm::none_of(uses, [&](const Use &use) { return isIn(name, scopeOf(*use.node)); });
  }

  /// True where several modules read the tensor by one kind of layer. A table that is also a head is so on purpose.
  bool isShared(const TensorProto &tensor) { return !modulesOf(tensor).empty(); }

  std::string modulesOf(const TensorProto &tensor) {
    llvm::StringSet<> scopes, kinds;
    std::string text;
    SmallVector<Use> uses = usesOf(tensor);
    for (const Use &use : uses) {
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

  void noteShared(const TensorProto &tensor) {
    if (std::string modules = modulesOf(tensor); !modules.empty())
      shared.emplace_back(tensor.name(), std::move(modules));
  }

  /// A larger tensor that the node reads beside operand `but`: a matrix or filter.
  std::string weightOf(const NodeProto &node, int but) const {
    for (auto [i, input] : llvm::enumerate(node.input())) {
      const TensorProto *tensor = static_cast<int>(i) == but ? nullptr : tensors.lookup(originOf(input));
      if (tensor && !isVector(*tensor) && tensor->dims_size() > 1 && operands.isWeight(node, static_cast<int>(i)))
        return tensor->name();
    }
    return "";
  }

  std::string originOf(std::string name) const {
    for (size_t steps = 0; steps < producers.size(); ++steps) {
      const NodeProto *node = producers.lookup(name);
      // An alias that got a tensor of its own stands for nothing else.
      if (!node || node->op_type() != "Identity" || node->input_size() != 1 || tensors.contains(name))
        break;
      name = node->input(0);
    }
    return name;
  }

  /// The matrix that a bias or scale goes with: of a layer in the same module, perhaps behind views, other biases and
  /// other scales.
  Beside besideOf(const Use &use) const {
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

  /// The operand that a view shows, or that a vector is added to or multiplied with; empty for other nodes.
  std::string throughOf(const NodeProto &node) const {
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

  static bool isWithin(StringRef inner, StringRef outer) { return inner == outer || isIn(inner, outer); }

  /// Uses by one kind of node in one module of the exporter's, or behind two products with one matrix, are one layer
  /// that is applied twice: they share the tensor. Others have their own, and so have the operands of one node and uses
  /// behind one product.
  std::string layerOf(size_t index, ArrayRef<Use> uses, ArrayRef<Beside> besides) const {
    const Use &use = uses[index];
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

  /// The path of the module that a node comes from, as torch's exporters say it; empty where none does.
  std::string scopeOf(const NodeProto &node) const {
    if (std::optional<StringRef> module = proto::exportedModule(node))
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
      bool again =
          !number.empty() && llvm::all_of(number, [](char c) { return llvm::isDigit(c); }) && knowsScope(plain);
      scope = again ? plain : within(scope, part);
    }
    return scope;
  }

  /// True where a node comes from a module of that path.
  bool knowsScope(const std::string &scope) const {
    if (scopes.empty())
      proto::visitGraphs(std::as_const(graph), [&](const GraphProto &part) {
        for (const NodeProto &node : part.node()) {
          std::string path = node.name();
          std::replace(path.begin(), path.end(), '/', '.');
          for (size_t end = path.find('.', 1); end != std::string::npos; end = path.find('.', end + 1))
            scopes.insert(StringRef(path).slice(1, end));
        }
      });
    return scopes.contains(scope);
  }

  /// Parameters that a merged tensor may be in a module, in their order: the missing ones, and the one that it is
  /// called after. With `deep` parameters of modules inside it as well.
  std::vector<std::string> namesIn(StringRef scope, StringRef merged, bool deep = false) const {
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

  /// The parameter that a use is of by the exporter's own word; empty where it says none. Of the operation that several
  /// nodes stand for, weights and scales come before biases.
  std::string argumentOf(const Use &use) const {
    std::vector<StringRef> arguments = proto::exportedArguments(*use.node);
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

  /// The parameter of the exporter's module that a use is of, which the merged tensor may be with `own`.
  std::string exportedName(const Use &use, StringRef merged, bool own) const {
    if (std::string name = argumentOf(use); !name.empty())
      return name;
    std::vector<std::string> found = namesIn(scopeOf(*use.node), own ? merged : "");
    return found.size() == 1 ? found.front() : "";
  }

  /// The name of the layer's own tensor: the exporter's, or else as frameworks form it beside the layer's weight or
  /// after its module.
  std::string nameFor(StringRef layer, const Use &use, StringRef merged, bool own) const {
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

  /// A copy's own tensor is called as the first one's, in its module.
  std::string cloneName(const Use &use, StringRef merged, StringRef home, StringRef layer) const {
    if (!use.alias.empty())
      return use.alias;
    std::string scope = scopeOf(*use.node);
    return isIn(merged, home) && !scope.empty() ? (scope + merged.drop_front(home.size())).str()
                                                : nameFor(layer, use, merged, /*own=*/false);
  }
  static bool isIn(StringRef name, StringRef scope) {
    return !scope.empty() && name.consume_front(scope) && name.starts_with(".");
  }

  void separate(TensorProto &tensor, Layers &layers, bool clones) {
    const std::string &merged = tensor.name();
    auto from = origins.find(merged);
    auto isOwner = [&](auto &layer) {
      const Use &use = layer.second.front();
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
      llvm::MapVector<StringRef, SmallVector<Use>> parts;
      for (const Use &use : all)
        parts[use.part].push_back(use);
      for (auto &[part, uses] : parts) {
        const Use &first = uses.front();
        bool named = clones || layer == first.alias;
        giveOwn(tensor, uses,
                named ? cloneName(first, merged, home, layer) : nameFor(layer, first, merged, /*own=*/false));
      }
    }
  }

  /// The uses, of one layer, get a tensor of that name.
  void giveOwn(const TensorProto &tensor, ArrayRef<Use> uses, std::string name) {
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
      proto::copySite(tensor, own);
    else
      proto::noteNew(own);
    proto::noteName(own, inFile);
    for (const Use &use : uses) {
      proto::noteUse(own, *use.node, use.operand);
      const std::string &before = !use.part.empty() ? use.part : use.alias.empty() ? merged : use.alias;
      llvm::erase_if(readers[before],
                     [&](const Use &other) { return other.node == use.node && other.operand == use.operand; });
      readers[name].push_back({use.node, use.operand});
      use.node->set_input(use.operand, name);
    }
    TensorProto &added = proto::addInitializer(model, std::move(own));
    tensors[name] = &added;
    if (auto known = declared.find(merged); known != declared.end())
      declared[name] = proto::Declared(known->second);
    separated[name] = merged;
  }

  /// A vector with the one value of another.
  TensorProto partOf(const TensorProto &tensor, int64_t length) const {
    TensorProto part;
    part.set_data_type(tensor.data_type());
    part.add_dims(length);
    std::string all = proto::rawBytes(tensor, loc.getContext());
    part.set_raw_data(all.substr(0, static_cast<size_t>(length) * sizeof(float)));
    return part;
  }

  /// Aliases whose readers have tensors of their own, under the alias' name. Other readers of one read the merged one.
  void dropAliases() {
    proto::visitGraphs(graph, [&](GraphProto &part) {
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

  ModelProto &model;
  GraphProto &graph;
  const ImportOptions &options;
  StringRef folder;
  Location loc;
  mutable proto::OperandUses operands;
  llvm::StringMap<std::vector<std::string>> origins;
  proto::DeclaredParameters &declared;
  llvm::StringMap<TensorProto *> tensors;
  llvm::StringMap<const ValueInfoProto *> types;
  llvm::StringMap<size_t> places;            ///< of the exporter's parameters
  llvm::StringMap<std::string> placeholders; ///< these parameters, by their names as arguments
  std::map<size_t, std::string> missing;     ///< parameters that have no tensor, by place
  llvm::StringMap<NodeProto *> producers;
  llvm::StringMap<SmallVector<Use>> readers;
  proto::TakenNames taken;
  llvm::StringSet<> names, dropped;
  llvm::StringSet<> fixed; ///< results of graphs
  mutable llvm::StringSet<> scopes;
  SmallVector<std::pair<std::string, std::string>> shared; ///< tensors that stay one, with the modules that read them
  int64_t cloned = 0;                                      ///< bytes of copies
  proto::SeparatedTensors separated;
};

} // namespace

FailureOr<proto::SeparatedTensors> proto::separateMerged(ModelProto &model, const ImportOptions &options,
                                                         StringRef folder, DeclaredParameters &declared, Location loc) {
  return MergedTensors(model, options, folder, declared, loc).run();
}

LogicalResult proto::settleTensors(ModelProto &model, const ImportOptions &options, StringRef folder,
                                   DeclaredParameters &declared, JoinedTensors &joined, SeparatedTensors &separated,
                                   Location loc) {
  ComputedTensors computed(model.graph());
  computed.unfold(model, folder, declared, loc);
  computed.restoreBiases(model, declared);
  joined = joinCopies(model, folder, declared, loc);
  FailureOr<SeparatedTensors> made = separateMerged(model, options, folder, declared, loc);
  if (failed(made))
    return failure();
  separated = std::move(*made);
  if (!separated.empty())
    for (const auto &[copy, kept] : joinCopies(model, folder, declared, loc))
      joined[copy] = kept;
  return success();
}
