// SPDX-License-Identifier: Apache-2.0
// Parameters that an exporter's optimizer has folded away: exp(t) of a trained t is in the file as one number.
#include "Computed.h"

#include "Proto.h"

#include "Sites.h"

#include "../ExporterNames.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

/// The name of an operation in the exporter's program, without a number.
static StringRef stemOf(StringRef value) { return value.rtrim("0123456789").rtrim('_'); }

static bool isLookUp(StringRef value) {
  return llvm::is_contained({"embedding", "index", "index_select", "gather"}, stemOf(value));
}

bool proto::isComputedValue(StringRef name, ArrayRef<std::string> origins) {
  auto any = [&](llvm::function_ref<bool(StringRef)> is) { return is(name) || llvm::any_of(origins, is); };
  if (!any(isLookUp) || isMadeInCode(name))
    return any(isMadeInCode);
  // Other arithmetic before a look-up is on its indices.
  return any([](StringRef value) {
    return llvm::is_contained({"exp", "sigmoid", "tanh", "softplus", "softmax", "relu", "sqrt", "rsqrt"},
                              stemOf(value));
  });
}

/// The batch norm that the exporter has folded into a convolution; empty where there was none.
static StringRef foldedNorm(const NodeProto &node) {
  bool folded = llvm::any_of(node.metadata_props(), [](const StringStringEntryProto &entry) {
    return entry.key() == "pkg.onnxscript.rewriter.rule_name" && StringRef(entry.value()).contains("FuseBatchNorm");
  });
  return folded ? proto::exportedModule(node).value_or("") : StringRef();
}

proto::ComputedTensors::ComputedTensors(const GraphProto &graph)
    : parameters(exportedParameters(graph)), buffers(exportedBuffers(graph)) {
  if (!parameters)
    return;
  lookForMerged(graph);
  for (const auto &[name, origins] : foldedFrom(graph, /*all=*/true)) {
    bool mixes = !isLookUp(name) && llvm::none_of(origins, isLookUp) &&
                 llvm::any_of(origins, [&](StringRef origin) { return isFactor(origin); }) &&
                 llvm::any_of(origins, [&](StringRef origin) { return parameters->contains(origin); });
    bool computed = mixes || isComputedValue(name, origins);
    if (mixes)
      mixed.push_back(name.str());
    for (const std::string &origin : origins)
      if (parameters->contains(origin))
        byParameter[origin].push_back({name.str(), computed, origins.size() == 1});
  }
}

void proto::ComputedTensors::lookForMerged(const GraphProto &graph) {
  llvm::StringMap<std::string> placeholders = exportedPlaceholders(graph);
  llvm::StringSet<> values;
  visitGraphs(graph, [&](const GraphProto &part) {
    for (const NodeProto &node : part.node())
      values.insert_range(node.output());
    for (const TensorProto &tensor : part.initializer())
      values.insert(tensor.name());
  });
  visitGraphs(graph, [&](const GraphProto &part) {
    for (const NodeProto &node : part.node()) {
      if (StringRef norm = foldedNorm(node); !norm.empty()) { // its arguments are the norm's, its inputs the layer's
        foldedNorms.insert(norm);
        continue;
      }
      // A tensor that the module has under two names stands here by the other one.
      std::vector<StringRef> arguments = exportedArguments(node);
      bool isTied = llvm::any_of(node.input(), [&](const std::string &input) {
        return parameters->contains(input) &&
               llvm::none_of(arguments, [&](StringRef given) { return placeholders.lookup(given) == input; });
      });
      for (StringRef argument : arguments) {
        if (auto parameter = placeholders.find(argument); parameter != placeholders.end())
          (isTied ? tied : used).insert(parameter->second);
        // Another result of such an operation has its place.
        bool isMerged = !values.contains(argument) && llvm::any_of(node.input(), [&](const std::string &input) {
          return values.contains(input) && stemOf(input) == stemOf(argument);
        });
        if (isMerged)
          merging.insert(exportedModule(node).value_or(""));
      }
    }
  });
}

static StringRef parentOf(StringRef path) { return path.contains('.') ? path.rsplit('.').first : StringRef(); }

/// An operation of the parameter's module may be among the merged ones: a module that reads one's result is near.
bool proto::ComputedTensors::mayBeMerged(StringRef parameter) const {
  StringRef around = parentOf(parentOf(parameter));
  if (tied.contains(parameter))
    return false;
  return used.contains(parameter) || llvm::any_of(merging, [&](const auto &reader) {
           StringRef near = parentOf(reader.getKey());
           return !around.empty() && (around == near || around == parentOf(near));
         });
}

/// A buffer of the module, if it is none of indices: its product with a parameter is neither.
bool proto::ComputedTensors::isFactor(StringRef origin) const {
  StringRef last = origin.substr(origin.rfind('.') + 1), word = last.substr(last.rfind('_') + 1);
  bool isIndex = llvm::is_contained({"index", "indices", "ids", "idx", "positions"}, word);
  return !isIndex && buffers.contains(origin);
}

namespace {
/// A function that exporters fold, by the operator's name without a number, and how it is undone.
struct Invertible {
  StringLiteral name, node;
  float (*inverse)(float);
};
constexpr Invertible invertible[] = {{"exp", "Exp", [](float y) { return std::log(y); }},
                                     {"sigmoid", "Sigmoid", [](float y) { return std::log(y / (1 - y)); }},
                                     {"tanh", "Tanh", [](float y) { return std::atanh(y); }}};
} // namespace

/// The elements of an FP32 tensor.
static SmallVector<float> floatsOf(TensorProto tensor, StringRef folder, Location loc) {
  FailureOr<ElementsAttr> values = proto::tensorAttr(tensor, folder, loc);
  if (failed(values))
    return {};
  if (auto resource = dyn_cast<DenseF32ResourceElementsAttr>(*values))
    if (std::optional<ArrayRef<float>> all = resource.tryGetAsArrayRef())
      return SmallVector<float>(*all);
  auto dense = dyn_cast<DenseElementsAttr>(*values);
  return dense ? llvm::to_vector(dense.getValues<float>()) : SmallVector<float>();
}

/// Puts a parameter and a node that computes `folded` from it in the place of this initializer; false where its values
/// are none of the function's.
static bool undo(const Invertible &function, const std::string &parameter, TensorProto &folded, ModelProto &model,
                 StringRef folder, Location loc) {
  SmallVector<float> values = floatsOf(folded, folder, loc);
  for (float &value : values)
    value = function.inverse(value);
  if (values.empty() || !llvm::all_of(values, [](float value) { return std::isfinite(value); }))
    return false;
  TensorProto tensor;
  tensor.set_name(parameter);
  tensor.set_data_type(TensorProto::FLOAT);
  *tensor.mutable_dims() = folded.dims();
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
  TensorView view;
  view.extents.assign(folded.dims().begin(), folded.dims().end());
  SmallVector<int64_t> strides = computeSuffixProduct(view.extents);
  view.strides.assign(strides.begin(), strides.end());
  view.function = function.name;
  proto::noteView(tensor, folded, view);
  auto &nodes = *model.mutable_graph()->mutable_node();
  NodeProto &node = *nodes.Add();
  node.set_op_type(function.node.str());
  node.set_name(folded.name());
  node.add_input(parameter);
  node.add_output(folded.name());
  std::rotate(nodes.pointer_begin(), nodes.pointer_end() - 1, nodes.pointer_end());
  folded = std::move(tensor);
  return true;
}

void proto::ComputedTensors::unfold(ModelProto &model, StringRef folder, DeclaredParameters &declared,
                                    Location loc) const {
  llvm::StringMap<TensorProto *> tensors;
  for (TensorProto &tensor : *model.mutable_graph()->mutable_initializer())
    tensors[tensor.name()] = &tensor;
  for (const std::string &name : mixed)
    declared[name] = Declared::Other;
  for (const auto &[parameter, values] : byParameter) {
    if (tensors.contains(parameter))
      continue;
    if (llvm::none_of(values, [](const Folded &value) { return value.computed; }))
      for (const Folded &value : values)
        declared[value.name] = Declared::Moved;
    TensorProto *folded = values.size() == 1 && values[0].alone ? tensors.lookup(values[0].name) : nullptr;
    if (!folded || folded->data_type() != TensorProto::FLOAT)
      continue;
    StringRef made = StringRef(values[0].name).rtrim("0123456789").rtrim('_');
    auto function = llvm::find_if(invertible, [&](const Invertible &known) { return known.name == made; });
    if (function != std::end(invertible) && undo(*function, parameter, *folded, model, folder, loc))
      declared[parameter] = Declared::Parameter;
  }
}

/// How many results a layer has a feature each of, by its weight; 0 for other nodes.
static int64_t biasExtent(const NodeProto &node, const TensorProto &weight) {
  auto attribute = [&](StringRef name, int64_t otherwise) {
    for (const AttributeProto &given : node.attribute())
      if (given.name() == name)
        return given.i();
    return otherwise;
  };
  if (!node.domain().empty() || node.input_size() != 2 || weight.dims_size() < 2)
    return 0;
  if (node.op_type() == "Conv")
    return weight.dims(0);
  if (node.op_type() == "ConvTranspose")
    return weight.dims(1) * attribute("group", 1);
  return node.op_type() == "Gemm" ? weight.dims(attribute("transB", 0) ? 0 : 1) : 0;
}

void proto::ComputedTensors::restoreBiases(ModelProto &model, DeclaredParameters &declared) const {
  if (!parameters)
    return;
  llvm::StringMap<const TensorProto *> tensors;
  for (const TensorProto &tensor : model.graph().initializer())
    tensors[tensor.name()] = &tensor;
  llvm::StringMap<std::vector<std::string>> origins = foldedFrom(model.graph());
  llvm::StringMap<std::string> placeholders = exportedPlaceholders(model.graph());
  llvm::MapVector<StringRef, TensorProto> biases; // one for all layers that share a weight
  for (NodeProto &node : *model.mutable_graph()->mutable_node()) {
    const TensorProto *weight = node.input_size() == 2 ? tensors.lookup(node.input(1)) : nullptr;
    int64_t extent = weight && weight->data_type() == TensorProto::FLOAT ? biasExtent(node, *weight) : 0;
    if (extent == 0)
      continue;
    auto origin = origins.find(node.input(1));
    StringRef layer = origin != origins.end() && origin->second.size() == 1 ? origin->second[0] : node.input(1);
    std::string name = layer.consume_back(".weight") ? (layer + ".bias").str() : "";
    if (StringRef norm = foldedNorm(node); !norm.empty()) // its shift holds the layer's bias
      name = (norm + ".bias").str();
    else if (std::vector<StringRef> arguments = exportedArguments(node);
             !parameters->contains(name) && !arguments.empty())
      name = placeholders.lookup(arguments.back()); // the weight is computed by the module
    if (!parameters->contains(name) || tensors.contains(name) || byParameter.count(name))
      continue;
    TensorProto &bias = biases[parameters->find(name)->getKey()];
    if (bias.name().empty()) {
      bias.set_name(name);
      bias.set_data_type(TensorProto::FLOAT);
      bias.add_dims(extent);
      bias.set_raw_data(std::string(static_cast<size_t>(extent) * sizeof(float), '\0'));
      noteNew(bias);
    }
    noteUse(bias, node, node.input_size());
    node.add_input(name);
    declared[name] = Declared::Parameter;
  }
  for (auto &[name, bias] : biases)
    addInitializer(model, std::move(bias));
}

/// Tensors of the file that ops of the module read, and whether they train.
static llvm::StringMap<bool> tensorsOf(ModuleOp module) {
  llvm::StringMap<bool> trains;
  for (auto state : module.getOps<train::StateOp>())
    trains[state.getTensorName()] = state.getRole() == train::Role::parameter && !state.getFrozen();
  module.walk([&](mpt::ConstantOp constant) {
    if (auto name = dyn_cast<NameLoc>(constant.getLoc()))
      trains.try_emplace(name.getName(), false);
  });
  return trains;
}

static std::string listed(ArrayRef<StringRef> names) {
  constexpr size_t most = 4;
  std::string text;
  for (StringRef name : names.take_front(most))
    text += (text.empty() ? "'" : ", '") + name.str() + "'";
  return names.size() > most ? text + " and " + std::to_string(names.size() - most) + " more" : text;
}

static SmallVector<StringRef> inOrder(const llvm::StringMap<size_t> &places) {
  SmallVector<StringRef> names(places.size());
  for (const auto &[name, place] : places)
    names[place] = name;
  return names;
}

void proto::ComputedTensors::warn(ModuleOp module, Location loc) const {
  if (!parameters)
    return;
  constexpr StringLiteral advice = "; export with optimize=False, or give the module itself to mpt.compile";
  llvm::StringMap<bool> trains = tensorsOf(module);
  llvm::SetVector<StringRef> gone, numbers, trained, stale;
  for (const auto &[parameter, values] : byParameter) {
    auto own = trains.find(parameter);
    if (own != trains.end() && !own->second) // held, which is said elsewhere
      continue;
    for (const Folded &value : values) {
      auto known = trains.find(value.name);
      if (known == trains.end() || (known->second && (own != trains.end() || !value.computed)))
        continue;
      (own == trains.end() ? gone : trained).insert(parameter);
      (own == trains.end() ? numbers : stale).insert(value.name);
    }
  }
  if (!gone.empty())
    emitWarning(loc) << listed(gone.getArrayRef()) << ": of these parameters of the exporter's module the file has no "
                     << "more than what was computed from them (" << listed(numbers.getArrayRef())
                     << "), so that they do not train as they are" << advice;
  llvm::SetVector<StringRef> lost;
  for (const auto &parameter : inOrder(*parameters))
    if (!trains.contains(parameter) && !byParameter.count(parameter.str()) && mayBeMerged(parameter) &&
        !foldedNorms.contains(parameter.rsplit('.').first))
      lost.insert(parameter);
  if (!lost.empty())
    emitWarning(loc) << listed(lost.getArrayRef())
                     << ": the file has no tensors of these parameters of the exporter's module, which began equal to "
                        "others: they train as one with these, or under other names"
                     << advice;
  if (!stale.empty())
    emitWarning(loc) << listed(stale.getArrayRef()) << ": computed from " << listed(trained.getArrayRef())
                     << " by the exporter, and the same numbers for ever while these train" << advice;
}
