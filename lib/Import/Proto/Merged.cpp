// SPDX-License-Identifier: Apache-2.0
// Parameters that an exporter has merged because their first values were equal: each layer gets its own again.
// Matcher: Identity and BatchNormalization of a file.
#include "Merged.h"

#include "../ExporterNames.h"
#include "Computed.h"
#include "Sites.h"

#include "mpt/Support/NearNames.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/Regex.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::proto;
using namespace ::onnx;

/// Bytes of a tensor of one value that is copied, at most.
constexpr int64_t mostBytes = int64_t(1) << 20;

FailureOr<SeparatedTensors> MergedTensors::run() {
  llvm::Regex tie("^(" + options.tie + ")$");
  SmallVector<std::string> merged;
  bool anyTied = false;
  // Matrices first: vectors beside one belong to its layer.
  for (bool vectors : {false, true})
    for (int i = 0, e = graph.initializer_size(); i < e; ++i) {
      TensorProto &tensor = *graph.mutable_initializer(i);
      auto known = declared.find(tensor.name());
      bool isBuffer = known != declared.end() && known->second == Declared::Other;
      if (isBuffer || !isFloat(tensor) || usesOf(tensor).size() < 2 || vectors != isBesideLayers(tensor))
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
    emitWarning(loc) << "'" << shared.front().first << "' trains as one tensor of the layers " << shared.front().second
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

void MergedTensors::lookForMissing() {
  llvm::StringSet<> present;
  for (const auto &[value, from] : origins)
    if (tensors.contains(value))
      present.insert_range(from);
  places = exportedParameters(graph).value_or(llvm::StringMap<size_t>());
  for (const auto &[name, place] : places)
    if (!taken.contains(name) && !present.contains(name))
      missing[place] = name.str();
}

void MergedTensors::look(GraphProto &part) {
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

int64_t MergedTensors::countOf(const google::protobuf::RepeatedField<int64_t> &extents) {
  int64_t count = 1;
  for (int64_t extent : extents)
    if (extent < 1 || extent > mostBytes || __builtin_mul_overflow(count, extent, &count))
      return 0;
  return 8 * count <= mostBytes ? count : 0;
}

bool MergedTensors::isVector(const TensorProto &tensor) {
  int64_t count = countOf(tensor.dims());
  return isFloat(tensor) && count > 1 && llvm::is_contained(tensor.dims(), count);
}

bool MergedTensors::isSplat(const TensorProto &tensor) const {
  TensorProto copy = tensor;
  FailureOr<ElementsAttr> values = tensorAttr(copy, folder, loc);
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
  return bytes.drop_front(width) == bytes.drop_back(width) || llvm::all_of(llvm::seq<size_t>(0, bytes.size()), isZero);
}

SmallVector<MergedUse> MergedTensors::usesOf(const TensorProto &tensor) {
  SmallVector<MergedUse> uses;
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
    for (const MergedUse &use : readers.lookup(value))
      if (isAlias(*use.node))
        work.push_back({use.node->output(0), isPart});
      else if (mayBeCut && cuts(use))
        llvm::append_range(work, llvm::map_range(use.node->output(), [](auto &part) { return Value{part, true}; }));
      else
        uses.push_back({use.node, use.operand, i == 0 || isPart ? "" : value, isPart ? value : ""});
  }
  if (!hasNames(tensor, uses))
    llvm::erase_if(uses, [&](const MergedUse &use) {
      bool isToken = isModules && use.node->op_type() == "Concat" && use.node->domain().empty();
      return !operands.mayTrain(*use.node, use.operand) && !operands.isFunction(*use.node, use.operand) && !isToken;
    });
  return uses;
}

bool MergedTensors::isAlias(const NodeProto &node) {
  return node.op_type() == "Identity" && node.domain().empty() && node.output_size() == 1;
}

bool MergedTensors::isParameterName(StringRef name) {
  return name.contains('.') && !name.contains('/') && !name.contains("::") && !isGeneratedName(name) &&
         !isBufferName(name);
}

bool MergedTensors::hasNames(const TensorProto &tensor, ArrayRef<MergedUse> uses) {
  return isParameterName(tensor.name()) &&
         llvm::any_of(uses, [](const MergedUse &use) { return isParameterName(use.alias); });
}

bool MergedTensors::isNumber(const TensorProto &tensor) {
  return llvm::all_of(tensor.dims(), [](int64_t extent) { return extent == 1; });
}

bool MergedTensors::isNamedNumber(const TensorProto &tensor) {
  auto known = declared.find(tensor.name());
  bool isParameter = known != declared.end() && known->second == Declared::Parameter;
  return isNumber(tensor) && ((isParameter && !missing.empty()) || hasNames(tensor, usesOf(tensor)));
}

bool MergedTensors::isBesideLayers(const TensorProto &tensor) {
  if (isVector(tensor) || isNamedNumber(tensor))
    return isSplat(tensor);
  SmallVector<MergedUse> uses = usesOf(tensor);
  auto isFunction = [&](const MergedUse &use) { return operands.isFunction(*use.node, use.operand); };
  if (isNumber(tensor)) // constants of formulas are many
    return tensor.dims_size() > 0 && llvm::any_of(uses, isFunction);
  return tensor.dims_size() > 1 && countOf(tensor.dims()) > 1 && isSplat(tensor) &&
         llvm::all_of(uses, [&](const MergedUse &use) {
           return !operands.isWeight(*use.node, use.operand) && !besideOf(use).weight.empty();
         });
}

void MergedTensors::noteShared(const TensorProto &tensor) {
  if (std::string modules = modulesOf(tensor); !modules.empty())
    shared.emplace_back(tensor.name(), std::move(modules));
}

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
