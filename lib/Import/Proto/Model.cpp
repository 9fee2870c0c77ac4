// SPDX-License-Identifier: Apache-2.0
// Loading a model: parsing, checks with located messages, inlining, symbolic dimensions, shape inference.
#include "Proto.h"
#include "Sites.h"

#include "../Loops.h"
#include "../StorageTypes.h"
#include "mpt/Dialect/ONNX/Schemas.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"

#include "onnx/checker.h"
#include "onnx/defs/parser.h"
#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"

#include "google/protobuf/io/coded_stream.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"
#include "google/protobuf/wire_format_lite.h"

#include <charconv>
#include <climits>
#include <set>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
/// Initializers up to this many elements stay in the graph for shape inference to look at.
constexpr int64_t visibleElements = 1024;

/// Ops without an import rule of their own: where the standard defines them by a function, that is imported instead.
struct WithoutRule : inliner::FunctionIdSet {
  bool Contains(const std::string &domain, const std::string &name) const override {
    return !hasImportRule(domain == "ai.onnx" || mpt::onnx::versionOfDomain(domain) ? "" : domain, name);
  }
};
} // namespace

Location proto::namedLoc(MLIRContext *context, StringRef name) { return NameLoc::get(StringAttr::get(context, name)); }

StringRef proto::nodeName(const NodeProto &node) {
  if (!node.name().empty())
    return node.name();
  for (const std::string &output : node.output())
    if (!output.empty())
      return output;
  return node.op_type();
}

int64_t proto::opsetVersion(const ModelProto &model, StringRef domain) {
  for (const OperatorSetIdProto &opset : model.opset_import())
    if (opset.domain() == domain || (domain.empty() && opset.domain() == "ai.onnx"))
      return opset.version();
  return 0;
}

std::string proto::numberText(float value) {
  char text[32];
  return {text, std::to_chars(text, std::end(text), value).ptr};
}

/// Parses binary protobuf, or text when it begins with '<' or '#'.
LogicalResult proto::parseBytes(StringRef bytes, ModelProto &model, Location loc) {
  StringRef head = bytes.ltrim();
  if (head.empty())
    return emitError(loc) << "expected an ONNX model, got an empty file [mpt-invalid-model]";
  if (head.starts_with("<") || head.starts_with("#")) {
    if (failed(proto::checkTextDepth(bytes, loc)))
      return failure();
    try {
      OnnxParser parser(std::string_view(bytes.data(), bytes.size()));
      Common::Status status = parser.Parse(model);
      if (!status.IsOK())
        return emitError(loc) << "expected ONNX text: " << proto::plainMessage(status.ErrorMessage())
                              << " [mpt-invalid-model]";
      if (!parser.EndOfInput())
        return emitError(loc) << "expected the end of the ONNX text after the model " << parser.GetCurrentPos();
    } catch (const std::exception &error) {
      return emitError(loc) << "expected ONNX text: " << proto::plainMessage(error.what()) << " [mpt-invalid-model]";
    }
    return success();
  }
  if (bytes.size() > INT_MAX)
    return emitError(loc) << "expected a model below 2 GiB, got " << bytes.size()
                          << " bytes; save it with external data";
  google::protobuf::LogSilencer silencer; // the error is reported below
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  stream.SetTotalBytesLimit(INT_MAX);
  if (!model.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage())
    return emitError(loc)
           << "expected an ONNX model, got bytes that do not parse; the file may be truncated [mpt-invalid-model]";
  return success();
}

LogicalResult proto::parseModel(StringRef bytes, ModelProto &model, Location loc) {
  return failure(failed(parseBytes(bytes, model, loc)) || failed(sortNodes(model, loc)) ||
                 failed(densifyInitializers(model, loc.getContext())));
}

LogicalResult proto::parseWithSites(StringRef bytes, ModelProto &model, Location loc) {
  if (failed(parseBytes(bytes, model, loc)))
    return failure();
  noteSites(model); // sorted nodes keep their notes
  return failure(failed(sortNodes(model, loc)) || failed(densifyInitializers(model, loc.getContext())));
}

/// The schema of a node's operator in an operator set; null where it has none.
static const OpSchema *schemaAt(const NodeProto &node, int64_t version) {
  return mpt::onnx::schemas().GetSchema(node.op_type(), static_cast<int>(version), "");
}

/// The first node of ai.onnx, at any depth, that means something else in `version` than in the oldest one known here,
/// or for version 0, which is none, any node of ai.onnx.
static const NodeProto *findChanged(const GraphProto &graph, int64_t version) {
  for (const NodeProto &node : graph.node()) {
    bool isStandard = node.domain().empty() || node.domain() == "ai.onnx";
    if (isStandard && (version == 0 || schemaAt(node, version) != schemaAt(node, proto::oldestOpset)))
      return &node;
    for (const AttributeProto &attribute : node.attribute())
      if (attribute.has_g())
        if (const NodeProto *inner = findChanged(attribute.g(), version))
          return inner;
  }
  return nullptr;
}

bool mpt::holdsSteps(StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file || (*file)->getBufferSize() > INT_MAX)
    return false;
  StringRef bytes = (*file)->getBuffer();
  google::protobuf::io::ArrayInputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedInputStream stream(&array);
  using google::protobuf::internal::WireFormatLite;
  while (uint32_t tag = stream.ReadTag()) {
    uint32_t size;
    if (tag !=
        WireFormatLite::MakeTag(ModelProto::kTrainingInfoFieldNumber, WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
      if (!WireFormatLite::SkipField(&stream, tag))
        return false;
      continue;
    }
    TrainingInfoProto info;
    if (!stream.ReadVarint32(&size))
      return false;
    auto limit = stream.PushLimit(static_cast<int>(size));
    if (!info.ParseFromCodedStream(&stream) || info.update_binding_size() > 0)
      return info.update_binding_size() > 0;
    stream.PopLimit(limit);
  }
  return false;
}

/// Versions that this importer knows.
static LogicalResult checkVersions(const ModelProto &model, Location loc) {
  if (!model.has_graph())
    return emitError(loc) << "expected a model with a graph, got none";
  if (model.ir_version() < 3 || model.ir_version() > Version::IR_VERSION)
    return emitError(loc) << "expected IR version 3 to " << static_cast<int64_t>(Version::IR_VERSION) << ", got "
                          << model.ir_version();
  int64_t newest = OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
  int64_t version = proto::opsetVersion(model, "");
  bool isOld = version < proto::oldestOpset && (version < 0 || findChanged(model.graph(), version));
  if (isOld || version > newest)
    return emitError(loc) << "expected opset " << proto::oldestOpset << " to " << newest << " of ai.onnx, got "
                          << version
                          << (version && version < proto::oldestOpset ? "; convert the model to a newer opset first"
                                                                      : "");
  return success();
}

/// Each value has one definition, before its uses (the checker says the same, but not where).
static LogicalResult checkNames(const GraphProto &graph, MLIRContext *context) {
  llvm::StringSet<> known, later;
  for (const ValueInfoProto &input : graph.input())
    if (!known.insert(input.name()).second)
      return emitError(proto::namedLoc(context, input.name()))
             << "expected distinct graph inputs, got '" << input.name() << "' twice";
  llvm::StringSet<> tensors;
  for (const TensorProto &tensor : graph.initializer()) {
    if (tensor.name().empty())
      return emitError(proto::namedLoc(context, graph.name())) << "expected a name for every initializer, got none";
    if (!tensors.insert(tensor.name()).second)
      return emitError(proto::namedLoc(context, tensor.name()))
             << "expected distinct initializers, got '" << tensor.name() << "' twice";
    known.insert(tensor.name());
  }
  for (const NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      if (!output.empty() && (known.contains(output) || !later.insert(output).second))
        return emitError(proto::namedLoc(context, proto::nodeName(node)))
               << "expected one definition of value '" << output << "', got another at this node";
  for (const NodeProto &node : graph.node()) {
    for (const std::string &input : node.input()) {
      if (input.empty() || known.contains(input))
        continue;
      return emitError(proto::namedLoc(context, proto::nodeName(node)))
             << "expected a defined value, got '" << input << "', which no node, input or initializer defines";
    }
    for (const std::string &output : node.output())
      known.insert(output);
  }
  if (graph.output().empty())
    return emitError(proto::namedLoc(context, graph.name())) << "expected at least one graph output, got none";
  for (const ValueInfoProto &output : graph.output())
    if (!known.contains(output.name()))
      return emitError(proto::namedLoc(context, output.name()))
             << "expected a defined graph output, got '" << output.name() << "', which no node defines";
  return success();
}

bool proto::isFloat(const TensorProto &tensor) {
  return llvm::is_contained({TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::DOUBLE},
                            tensor.data_type());
}

static int64_t elementCount(const TensorProto &tensor) {
  int64_t count = 1;
  for (int64_t extent : tensor.dims())
    if (extent < 0 || __builtin_mul_overflow(count, extent, &count))
      return LLONG_MAX;
  return count;
}

void proto::declareType(ValueInfoProto &value, const TensorProto &tensor) {
  auto &type = *value.mutable_type()->mutable_tensor_type();
  type.set_elem_type(tensor.data_type());
  auto &shape = *type.mutable_shape(); // also of a scalar
  for (int64_t extent : tensor.dims())
    shape.add_dim()->set_dim_value(extent);
}

void proto::declareInput(GraphProto &graph, const TensorProto &tensor) {
  ValueInfoProto &input = *graph.add_input();
  input.set_name(tensor.name());
  declareType(input, tensor);
}

TensorProto &proto::addInitializer(ModelProto &model, TensorProto tensor) {
  GraphProto &graph = *model.mutable_graph();
  if (model.ir_version() < 4) // where initializers are inputs too
    declareInput(graph, tensor);
  return *graph.add_initializer() = std::move(tensor);
}

/// Moves large initializers out and declares them as inputs, so that neither the checker nor inference copies them.
static LogicalResult splitInitializers(ModelProto &model, std::vector<TensorProto> &initializers,
                                       MLIRContext *context) {
  GraphProto &graph = *model.mutable_graph();
  llvm::StringSet<> inputs;
  for (const ValueInfoProto &input : graph.input())
    inputs.insert(input.name());
  google::protobuf::RepeatedPtrField<TensorProto> kept;
  initializers.reserve(graph.initializer_size());
  for (TensorProto &tensor : *graph.mutable_initializer()) {
    if (failed(proto::checkTensor(tensor, proto::namedLoc(context, tensor.name()))))
      return failure();
    // Tensors that lowerStorageTypes() changes have a declared type.
    bool small = elementCount(tensor) <= visibleElements && tensor.data_location() != TensorProto::EXTERNAL &&
                 !isStorageType(tensor.data_type());
    if (small) {
      *kept.Add() = tensor;
    } else if (!inputs.contains(tensor.name())) {
      proto::declareInput(graph, tensor);
    }
    initializers.push_back(std::move(tensor));
  }
  graph.mutable_initializer()->Swap(&kept);
  return success();
}

namespace {
/// Gives inputs and outputs without a shape one, as long as it lives: the checker wants it, and others do not.
class DeclaredShapes {
public:
  explicit DeclaredShapes(GraphProto &graph) {
    for (auto *values : {graph.mutable_input(), graph.mutable_output()})
      for (ValueInfoProto &value : *values) {
        if (!value.type().has_tensor_type() || value.type().tensor_type().has_shape())
          continue;
        without.push_back(value.mutable_type()->mutable_tensor_type());
        without.back()->mutable_shape();
      }
  }
  ~DeclaredShapes() {
    for (TypeProto::Tensor *type : without)
      type->clear_shape();
  }

private:
  std::vector<TypeProto::Tensor *> without;
};
} // namespace

/// checker::check_model() with our registry, for a model that checkVersions() has accepted.
static void runChecker(const ModelProto &model) {
  checker::CheckerContext context;
  context.set_schema_registry(&mpt::onnx::schemas());
  context.set_skip_opset_compatibility_check(true);
  context.set_ir_version(static_cast<int>(model.ir_version()));
  std::set<std::string> keys;
  for (const StringStringEntryProto &entry : model.metadata_props())
    if (!keys.insert(entry.key()).second)
      throw checker::ValidationError("metadata_props has key '" + entry.key() + "' twice");
  std::unordered_map<std::string, int> opsets;
  for (const OperatorSetIdProto &opset : model.opset_import()) {
    if (opset.version() != static_cast<int>(opset.version()))
      throw checker::ValidationError("version " + std::to_string(opset.version()) + " of opset '" + opset.domain() +
                                     "' is out of range");
    opsets[opset.domain()] = static_cast<int>(opset.version());
  }
  context.set_opset_imports(std::move(opsets));
  checker::LexicalScopeContext names;
  checker::check_graph(model.graph(), context, names);
  if (model.ir_version() >= 8)
    checker::check_model_local_functions(model, context, names);
}

/// The first steps of every import: versions, names, the ONNX checker, inlining of local functions.
static LogicalResult checkAndInline(ModelProto &model, std::vector<TensorProto> &initializers, bool isRewritten,
                                    Location loc) {
  MLIRContext *context = loc.getContext();
  if (failed(checkVersions(model, loc)) || failed(checkNames(model.graph(), context)) ||
      failed(proto::settleUnregistered(model, isRewritten, context)) || failed(proto::checkLimits(model, context)) ||
      failed(splitInitializers(model, initializers, context)))
    return failure();
  auto check = [&]() -> std::optional<std::string> {
    DeclaredShapes declared(*model.mutable_graph());
    try {
      runChecker(model);
      return std::nullopt;
    } catch (const std::exception &error) {
      return error.what();
    }
  };
  if (failed(proto::checkByLibrary(model, "a valid ONNX model", context, check)))
    return failure();
  return proto::inlineFunctions(model, isRewritten, loc);
}

static LogicalResult checkShapes(ModelProto &model, MLIRContext *context) {
  return proto::checkByLibrary(model, "consistent types and shapes", context,
                               [&] { return proto::inferShapes(model); });
}

/// Leaves shapes of bodies to inference: converters declare some wrongly, which ONNX Runtime takes.
static void forgetInnerShapes(GraphProto &graph) {
  proto::visitGraphs(graph, [&](GraphProto &part) {
    if (&part == &graph)
      return;
    part.clear_value_info();
    for (ValueInfoProto &output : *part.mutable_output())
      if (output.type().has_tensor_type())
        output.mutable_type()->mutable_tensor_type()->clear_shape();
  });
}

void proto::copyHeader(const GraphProto &graph, GraphProto &header) {
  header.set_name(graph.name());
  if (graph.has_doc_string())
    header.set_doc_string(graph.doc_string());
  *header.mutable_input() = graph.input();
  *header.mutable_output() = graph.output();
  *header.mutable_quantization_annotation() = graph.quantization_annotation();
  *header.mutable_metadata_props() = graph.metadata_props();
}

ModelProto proto::modelHeader(const ModelProto &model) {
  ModelProto header;
  header.set_ir_version(model.ir_version());
  if (model.has_producer_name())
    header.set_producer_name(model.producer_name());
  if (model.has_producer_version())
    header.set_producer_version(model.producer_version());
  if (model.has_domain())
    header.set_domain(model.domain());
  if (model.has_model_version())
    header.set_model_version(model.model_version());
  if (model.has_doc_string())
    header.set_doc_string(model.doc_string());
  *header.mutable_metadata_props() = model.metadata_props();
  copyHeader(model.graph(), *header.mutable_graph());
  return header;
}

LogicalResult proto::prepareNodes(ModelProto &model, std::vector<TensorProto> &initializers, Location loc) {
  if (model.training_info_size())
    return emitError(loc) << "expected a graph without TrainingInfoProto, which names its tensors by string; give "
                             "--optimizer to make a training step instead";
  proto::forgetNegativeExtents(*model.mutable_graph());
  if (failed(checkAndInline(model, initializers, /*isRewritten=*/true, loc)))
    return failure();
  // The declared shapes go back into the file, unless one of them is wrong.
  if (!proto::inferShapes(model))
    return success();
  forgetInnerShapes(*model.mutable_graph());
  return checkShapes(model, loc.getContext());
}

/// Some producers write weights as Constant nodes. Where a filter or matrix is one, all tensors of floats that are
/// become initializers.
static void liftWeights(ModelProto &model) {
  GraphProto &graph = *model.mutable_graph();
  if (!proto::holdsMatrices(graph))
    return;
  google::protobuf::RepeatedPtrField<NodeProto> kept;
  for (NodeProto &node : *graph.mutable_node()) {
    if (!proto::floatConstant(node)) {
      kept.Add(std::move(node));
      continue;
    }
    TensorProto tensor;
    tensor.Swap(node.mutable_attribute(0)->mutable_t());
    tensor.set_name(node.output(0));
    proto::addInitializer(model, std::move(tensor));
  }
  graph.mutable_node()->Swap(&kept);
}

LogicalResult proto::liftTensors(ModelProto &model, MLIRContext *context) {
  if (failed(densifyConstants(model, context)))
    return failure();
  liftWeights(model);
  liftSubgraphWeights(model);
  return success();
}

/// Before version 4 of the format, initializers of a subgraph are listed among its inputs too, and some exporters go on
/// so. Inference would count them as operands that the node lacks.
static void dropListedInitializers(GraphProto &graph, int64_t version) {
  for (NodeProto &node : *graph.mutable_node())
    for (AttributeProto &attribute : *node.mutable_attribute()) {
      if (!attribute.has_g())
        continue;
      GraphProto &body = *attribute.mutable_g();
      dropListedInitializers(body, version);
      bool lengths = node.op_type() == "Scan" && version < 9; // an operand that is not the body's
      if (body.input_size() <= (node.op_type() == "If" ? 0 : node.input_size() - lengths))
        continue;
      llvm::StringSet<> initializers;
      for (const TensorProto &tensor : body.initializer())
        initializers.insert(tensor.name());
      auto &inputs = *body.mutable_input();
      inputs.erase(
          llvm::remove_if(inputs, [&](const ValueInfoProto &input) { return initializers.contains(input.name()); }),
          inputs.end());
    }
}

/// Gives ops that the standard defines by a function their default attributes, which some functions' bodies name
/// without having them. The inference of STFT takes another default than its text.
static void addDefaults(ModelProto &model) {
  int64_t version = proto::opsetVersion(model, "");
  (void)proto::visitNodes(*model.mutable_graph()->mutable_node(), [&](NodeProto &node) {
    if (!node.domain().empty() && node.domain() != "ai.onnx")
      return success();
    const OpSchema *schema = mpt::onnx::schemas().GetSchema(node.op_type(), static_cast<int>(version), "");
    if (!schema || (!schema->HasFunction() && node.op_type() != "STFT"))
      return success();
    for (const auto &[name, attribute] : schema->attributes()) {
      bool given =
          llvm::any_of(node.attribute(), [&wanted = name](const AttributeProto &a) { return a.name() == wanted; });
      if (!given && attribute.default_value.type() != AttributeProto::UNDEFINED)
        *node.add_attribute() = attribute.default_value;
    }
    return success();
  });
}

/// Gives Loop nodes, also inside subgraphs, the bounds that the user names; takes their names out of `open`.
static void noteSteps(GraphProto &graph, const ImportOptions &options, llvm::StringSet<> &open) {
  for (NodeProto &node : *graph.mutable_node()) {
    for (AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        noteSteps(*attribute.mutable_g(), options, open);
    auto steps = options.maxSteps.find(proto::nodeName(node));
    if (steps == options.maxSteps.end() || node.op_type() != "Loop")
      continue;
    open.erase(steps->getKey());
    AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(maxStepsAttr.str());
    attribute.set_type(AttributeProto::INT);
    attribute.set_i(steps->second);
  }
}

/// Takes that away again, where a prepared graph is a part of another one that the library checks.
static void forgetSteps(GraphProto &graph) {
  for (NodeProto &node : *graph.mutable_node()) {
    auto &attributes = *node.mutable_attribute();
    attributes.erase(llvm::remove_if(attributes, [](const AttributeProto &a) { return a.name() == maxStepsAttr; }),
                     attributes.end());
    for (AttributeProto &attribute : attributes)
      if (attribute.has_g())
        forgetSteps(*attribute.mutable_g());
  }
}

/// Results are called by name: a value that is listed twice is one of them.
static void dropRepeatedOutputs(GraphProto &graph, MLIRContext *context) {
  llvm::StringSet<> names;
  auto isRepeated = [&](const ValueInfoProto &output) {
    bool isNew = names.insert(output.name()).second;
    if (!isNew)
      emitWarning(proto::namedLoc(context, output.name()))
          << "'" << output.name() << "' is an output of the graph twice: the step has it once";
    return !isNew;
  };
  auto &outputs = *graph.mutable_output();
  outputs.erase(std::remove_if(outputs.begin(), outputs.end(), isRepeated), outputs.end());
}

/// The steps behind the ONNX library's inference, which does not know their attributes and types.
static LogicalResult finish(ModelProto &model, const ImportOptions &options, bool isPart, MLIRContext *context) {
  llvm::StringSet<> open;
  for (const auto &steps : options.maxSteps) {
    if (steps.second < 1 || steps.second > mostSteps)
      return emitError(proto::namedLoc(context, steps.getKey()))
             << "expected --max-steps from 1 to " << mostSteps << ", got " << steps.second;
    open.insert(steps.getKey());
  }
  noteSteps(*model.mutable_graph(), options, open);
  if (!open.empty() && !isPart)
    return emitError(proto::namedLoc(context, open.begin()->getKey()))
           << "expected --max-steps to name a Loop node, got '" << open.begin()->getKey() << "' [mpt-no-match]";
  return proto::lowerStorageTypes(model, context);
}

LogicalResult proto::prepareModel(ModelProto &model, std::vector<TensorProto> &initializers,
                                  const ImportOptions &options, Location loc, bool isPart) {
  MLIRContext *context = loc.getContext();
  if (isPart && !options.maxSteps.empty())
    forgetSteps(*model.mutable_graph());
  proto::forgetNegativeExtents(*model.mutable_graph());
  dropRepeatedOutputs(*model.mutable_graph(), context);
  if (failed(liftTensors(model, context)) || failed(takeGradientOperands(model, context)) ||
      failed(checkAndInline(model, initializers, /*isRewritten=*/false, loc)) ||
      failed(proto::bindDimensions(*model.mutable_graph(), initializers, options, isPart, context)))
    return failure();
  addDefaults(model);
  dropListedInitializers(*model.mutable_graph(), opsetVersion(model, ""));
  GraphProto &graph = *model.mutable_graph();
  // Shapes in the file may hold symbols that are numbers now; inference finds them again.
  graph.clear_value_info();
  forgetInnerShapes(graph);
  llvm::StringMap<const ValueInfoProto *> inputs;
  for (const ValueInfoProto &input : graph.input())
    inputs[input.name()] = &input;
  for (ValueInfoProto &output : *graph.mutable_output())
    if (const ValueInfoProto *same = inputs.lookup(output.name()))
      *output.mutable_type() = same->type(); // no node gives it a shape
    else if (output.type().has_tensor_type())
      output.mutable_type()->mutable_tensor_type()->clear_shape();
  bool anyWithoutRule = failed(visitNodes(*graph.mutable_node(), [](const NodeProto &node) {
    return failure(WithoutRule().Contains(node.domain(), node.op_type()));
  }));
  if (failed(checkShapes(model, context)))
    return failure();
  if (!anyWithoutRule)
    return finish(model, options, isPart, context);
  // The inliner infers shapes with the registered schemas, so ours had to find nothing wrong before.
  ModelProto expanded = model;
  // It looks for the types of initializers among the types of values.
  for (const TensorProto &tensor : expanded.graph().initializer()) {
    ValueInfoProto &value = *expanded.mutable_graph()->add_value_info();
    value.set_name(tensor.name());
    proto::declareType(value, tensor);
  }
  // It looks for the types of absent operands too, whose name is empty.
  auto &values = *expanded.mutable_graph()->mutable_value_info();
  values.Add()->mutable_type()->mutable_tensor_type()->set_elem_type(TensorProto::FLOAT);
  try {
    inliner::InlineSelectedFunctions(expanded, WithoutRule(), nullptr);
    values.erase(llvm::remove_if(values, [](const ValueInfoProto &value) { return value.name().empty(); }),
                 values.end());
    if (!proto::inferShapes(expanded))
      model = std::move(expanded);
  } catch (const std::exception &) {
    // The op keeps its name, and conversion says that there is no rule for it.
  }
  return finish(model, options, isPart, context);
}
