// SPDX-License-Identifier: Apache-2.0
// Matcher: Identity and BatchNormalization of a file.
// Parameters that an exporter has merged because their first values were equal: each layer gets its own again.
#include "Computed.h"
#include "OperandUses.h"
#include "Proto.h"
#include "Roles.h"
#include "Sites.h"

#include "mpt/Support/NearNames.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

/// Bytes of a tensor of one value that is copied, and of all other copies, at most: a file that repeats itself must not
/// grow without end.
constexpr int64_t mostBytes = int64_t(1) << 20, mostCloned = int64_t(1) << 31;

/// An operand that reads a tensor, directly or under the name that an Identity gives it.
struct Use {
  NodeProto *node;
  int operand;
  std::string alias = {};
};

class MergedTensors {
public:
  MergedTensors(ModelProto &model, const ImportOptions &options, StringRef folder, Location loc)
      : model(model), graph(*model.mutable_graph()), options(options), folder(folder), loc(loc), operands(model),
        origins(proto::foldedFrom(graph)) {
    for (TensorProto &tensor : *graph.mutable_initializer())
      tensors[tensor.name()] = &tensor;
    proto::visitGraphs(graph, [&](GraphProto &part) { look(part); });
  }

  FailureOr<proto::SeparatedTensors> run(proto::DeclaredParameters &declared) {
    llvm::Regex tie("^(" + options.tie + ")$");
    SmallVector<std::string> merged;
    bool anyTied = false;
    // Matrices first: vectors beside one belong to its layer.
    for (bool vectors : {false, true})
      for (int i = 0, e = graph.initializer_size(); i < e; ++i) {
        TensorProto &tensor = *graph.mutable_initializer(i);
        auto known = declared.find(tensor.name());
        bool isBuffer = known != declared.end() && known->second == proto::Declared::Other;
        if (isBuffer || !proto::isFloat(tensor) || usesOf(tensor).size() < 2 ||
            vectors != ((isVector(tensor) || isNamedNumber(tensor)) && isSplat(tensor)))
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
          separate(tensor, layers, /*clones=*/!vectors, declared);
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

  void look(GraphProto &part) {
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

  /// Floats along one axis.
  static bool isVector(const TensorProto &tensor) {
    int64_t count = 1, longest = 1;
    for (int64_t extent : tensor.dims()) {
      if (extent < 1 || extent > mostBytes || __builtin_mul_overflow(count, extent, &count))
        return false;
      longest = std::max(longest, extent);
    }
    return proto::isFloat(tensor) && count > 1 && count == longest && 8 * count <= mostBytes;
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
  /// have kept the names of several parameters, each reader is one's.
  SmallVector<Use> usesOf(const TensorProto &tensor) {
    SmallVector<Use> uses;
    SmallVector<std::string> work{tensor.name()};
    for (size_t i = 0; i < work.size(); ++i) {
      if (fixed.contains(work[i]))
        return {};
      for (const Use &use : readers.lookup(work[i]))
        if (use.node->op_type() == "Identity" && use.node->domain().empty() && use.node->output_size() == 1)
          work.push_back(use.node->output(0));
        else
          uses.push_back({use.node, use.operand, i == 0 ? "" : work[i]});
    }
    if (!hasNames(tensor, uses))
      llvm::erase_if(uses, [&](const Use &use) {
        return !operands.mayTrain(*use.node, use.operand) && !operands.isFunction(*use.node, use.operand);
      });
    return uses;
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

  /// A scale that is one number, as in StarReLU: constants of formulas are many, and their names are the exporter's.
  bool isNamedNumber(const TensorProto &tensor) {
    bool isNumber = llvm::all_of(tensor.dims(), [](int64_t extent) { return extent == 1; });
    return isNumber && hasNames(tensor, usesOf(tensor));
  }

  /// Uses by layer: of one matrix first, which a module may have under two names, then by the names of parameters.
  Layers layersOf(const TensorProto &tensor) {
    Layers layers;
    SmallVector<Use> uses = usesOf(tensor);
    bool named = hasNames(tensor, uses);
    for (const Use &use : uses) {
      StringRef name = use.alias.empty() ? StringRef(tensor.name()) : StringRef(use.alias);
      bool byName = named && isParameterName(name) && besideOf(use).empty();
      layers[names.insert(byName ? name.str() : layerOf(use, uses)).first->getKey()].push_back(use);
    }
    return layers;
  }

  /// Layers that were one another's copies, as in torch.nn.TransformerEncoder, by a feature that tells them apart: a
  /// name of their own, which the exporter has kept as an alias, or their number in a list of modules. A tensor that
  /// was one in the module has neither. Matrices and filters of one value, as behind a norm whose scale begins
  /// with zeros, are equal by their first values: each module has its own.
  Layers clonesOf(const TensorProto &tensor) {
    SmallVector<Use> uses = usesOf(tensor);
    llvm::StringSet<> shapes;
    SmallVector<std::string> numbers;
    for (const Use &use : uses) {
      // Else it may be a mask, or a constant of arithmetic.
      if (!operands.isWeight(*use.node, use.operand) && besideOf(use).empty())
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
      if (tensor && !isVector(*tensor) && tensor->dims_size() > 1)
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

  /// The matrix that a bias or scale goes with.
  std::string besideOf(const Use &use) const {
    std::string weight = weightOf(*use.node, use.operand);
    for (int i = 0; weight.empty() && i < use.node->input_size(); ++i)
      if (const NodeProto *made = i == use.operand ? nullptr : producers.lookup(use.node->input(i)))
        weight = weightOf(*made, -1);
    return weight;
  }

  /// Two uses beside one matrix, or by one kind of node in one module of the exporter's, are one layer that is applied
  /// twice: they share the tensor. Others have their own, and so have the operands of one node.
  std::string layerOf(const Use &use, ArrayRef<Use> uses) const {
    std::string weight = besideOf(use), scope = scopeOf(*use.node);
    std::string layer = !weight.empty()  ? weight
                        : !scope.empty() ? "/" + scope + "|" + use.node->op_type()
                                         : "#" + std::to_string(reinterpret_cast<uintptr_t>(use.node));
    bool isSecond =
        llvm::any_of(uses, [&](const Use &other) { return other.node == use.node && other.operand < use.operand; });
    return isSecond ? layer + "|" + std::to_string(use.operand) : layer;
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

  /// The name of the layer's own tensor, as frameworks form it beside the layer's weight or after its module.
  std::string nameFor(StringRef layer, const Use &use, StringRef merged) const {
    std::string scope = scopeOf(*use.node);
    bool scales = use.node->op_type() == "Mul" || (use.operand == 1 && use.node->input_size() > 2) ||
                  !isVector(*tensors.lookup(merged));
    auto from = origins.find(layer);
    StringRef base = from != origins.end() && from->second.size() == 1 ? StringRef(from->second.front()) : layer;
    auto [module, own] = base.rsplit('.');
    if (!scales && own.consume_front("weight_")) // of a recurrence
      return (module + ".bias_" + own).str();
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
                                                : nameFor(layer, use, merged);
  }
  static bool isIn(StringRef name, StringRef scope) {
    return !scope.empty() && name.consume_front(scope) && name.starts_with(".");
  }

  void separate(TensorProto &tensor, Layers &layers, bool clones, proto::DeclaredParameters &declared) {
    const std::string &merged = tensor.name();
    auto isOwner = [&](auto &layer) {
      const Use &use = layer.second.front();
      return clones ? isIn(merged, scopeOf(*use.node))
                    : layer.first == merged || nameFor(layer.first, use, merged) == merged;
    };
    auto owner = llvm::find_if(layers, isOwner);
    StringRef kept = owner == layers.end() ? layers.front().first : owner->first;
    std::string home = scopeOf(*layers.lookup(kept).front().node);
    for (auto &[layer, uses] : layers) {
      if (layer == kept)
        continue;
      std::string name = clones || layer == uses.front().alias ? cloneName(uses.front(), merged, home, layer)
                                                               : nameFor(layer, uses.front(), merged);
      // An alias gives way: the tensor that it stood for has its name.
      const NodeProto *alias = producers.lookup(name);
      bool isAlias = alias && alias->op_type() == "Identity" && originOf(name) == merged && !fixed.contains(name) &&
                     !dropped.contains(name);
      std::string inFile = proto::takeName(taken, name, isAlias ? name : merged);
      if (isAlias)
        dropped.insert(name);
      else
        name = inFile;
      TensorProto own = tensor;
      own.set_name(name);
      own.clear_metadata_props(); // copies are of the one that was there
      proto::copySite(tensor, own);
      proto::noteName(own, inFile);
      for (const Use &use : uses) {
        proto::noteUse(own, *use.node, use.operand);
        const std::string &before = use.alias.empty() ? merged : use.alias;
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
  llvm::StringMap<TensorProto *> tensors;
  llvm::StringMap<NodeProto *> producers;
  llvm::StringMap<SmallVector<Use>> readers;
  llvm::StringSet<> taken, names, dropped;
  llvm::StringSet<> fixed; ///< results of graphs
  mutable llvm::StringSet<> scopes;
  SmallVector<std::pair<std::string, std::string>> shared; ///< tensors that stay one, with the modules that read them
  int64_t cloned = 0;                                      ///< bytes of copies
  proto::SeparatedTensors separated;
};

} // namespace

FailureOr<proto::SeparatedTensors> proto::separateMerged(ModelProto &model, const ImportOptions &options,
                                                         StringRef folder, DeclaredParameters &declared, Location loc) {
  return MergedTensors(model, options, folder, loc).run(declared);
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

static bool isInferenceNorm(const NodeProto &node, int64_t version) {
  if (node.op_type() != "BatchNormalization" || !node.domain().empty() || version < 7)
    return false;
  bool trains = version < 14 && node.output_size() > 1;
  for (const AttributeProto &attribute : node.attribute())
    trains |= version >= 14 && attribute.name() == "training_mode" && attribute.i() != 0;
  return !trains;
}

FailureOr<int64_t> proto::settleBatchNorms(ModelProto &model, const ImportOptions &options, Location loc) {
  int64_t version = opsetVersion(model, ""), count = 0;
  for (NodeProto &node : *model.mutable_graph()->mutable_node()) {
    if (!isInferenceNorm(node, version))
      continue;
    ++count;
    if (options.batchNorm != "train")
      continue;
    if (version >= 14) {
      auto given = llvm::find_if(*node.mutable_attribute(), [](auto &a) { return a.name() == "training_mode"; });
      AttributeProto &mode = given == node.mutable_attribute()->end() ? *node.add_attribute() : *given;
      mode.set_name("training_mode");
      mode.set_type(AttributeProto::INT);
      mode.set_i(1);
    }
    SmallVector<StringRef> results{"running_mean", "running_var"};
    if (version < 14) // one result, or all
      results.append({"saved_mean", "saved_var"});
    for (StringRef name : results)
      node.add_output((node.output(0) + "/" + name).str());
  }
  if (options.batchNorm == "train" && count == 0)
    return emitError(loc) << "expected batch normalizations in inference form for --batch-norm=train, found none; "
                             "those in training form move their statistics anyway";
  if (options.batchNorm == "train")
    separateStatistics(model);
  return options.batchNorm == "train" ? 0 : count;
}
