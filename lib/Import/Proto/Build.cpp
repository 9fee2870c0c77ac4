// SPDX-License-Identifier: Apache-2.0
// A prepared model to a module of onnx.node ops.
#include "Proto.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/ONNX/Schemas.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SaveAndRestore.h"

#include "onnx/defs/schema.h"

#include "google/protobuf/text_format.h"

using namespace mlir;
using namespace mpt;
using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::ValueInfoProto;

Type proto::valueType(MLIRContext *context, const ::onnx::TypeProto &type, bool keepsSymbols) {
  if (type.has_sequence_type())
    return TupleType::get(context, {valueType(context, type.sequence_type().elem_type(), keepsSymbols)});
  if (!type.has_tensor_type())
    return NoneType::get(context);
  Type element = elementType(context, type.tensor_type().elem_type());
  if (!element)
    return NoneType::get(context);
  if (!type.tensor_type().has_shape())
    return UnrankedTensorType::get(element);
  SmallVector<int64_t> shape;
  SmallVector<Attribute> symbols;
  bool anySymbol = false;
  for (const auto &dim : type.tensor_type().shape().dim()) {
    shape.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : ShapedType::kDynamic);
    symbols.push_back(StringAttr::get(context, dim.dim_param()));
    anySymbol |= !dim.dim_param().empty();
  }
  return RankedTensorType::get(shape, element,
                               keepsSymbols && anySymbol ? ArrayAttr::get(context, symbols) : Attribute());
}

namespace {
/// Constants of a training step with up to this many elements are ops in the function, larger ones are states.
constexpr int64_t smallConstant = 64;

class ModuleBuilder {
public:
  ModuleBuilder(ModelProto &model, std::vector<TensorProto> &initializers, StringRef folder,
                const proto::StepInfo &step, ModelProto *header, MLIRContext *context)
      : model(&model), initializers(initializers), folder(folder), step(step), header(header), faithful(header),
        context(context), builder(context) {}

  FailureOr<OwningOpRef<ModuleOp>> build(StringRef name);
  /// Another graph over the same states, as the function `name`.
  LogicalResult addAlgorithm(ModuleOp module, proto::Algorithm &algorithm, StringRef name);

private:
  FailureOr<func::FuncOp> addFunction(ModuleOp module, GraphProto &graph, StringRef name);
  LogicalResult addTensors(func::FuncOp function);
  DictionaryAttr updatesAttr(const llvm::StringMap<std::string> &updates);
  LogicalResult addInitializer(TensorProto &tensor, func::FuncOp main);
  void bring(StringRef name, Location loc);
  LogicalResult addUnchanged(TensorProto &tensor);
  LogicalResult addNodes(GraphProto &graph);
  LogicalResult addNode(NodeProto &node);
  LogicalResult addBody(Region &region, GraphProto &graph, Location loc);
  void keepDetails(mpt::onnx::NodeOp op, NodeProto &node, ArrayRef<Attribute> opaque);
  void define(StringRef name, Value value);
  FailureOr<Attribute> attribute(AttributeProto &attr, Location loc);
  FailureOr<Value> lookup(StringRef name, Location loc);
  Type typeOf(StringRef name) {
    auto found = types.find(name);
    return found == types.end() ? NoneType::get(context) : found->second;
  }
  using Types = std::vector<std::pair<std::string, Type>>;
  Types addTypes(const GraphProto &graph);

  Type typeOf(const ::onnx::TypeProto &type) { return proto::valueType(context, type, faithful); }

  /// The form of an initializer in the module: a constant, or a state.
  struct Source {
    ElementsAttr value; ///< null for states
    std::string state;
    Type type;
  };

  ModelProto *model; ///< of the function at hand
  std::vector<TensorProto> &initializers;
  StringRef folder;
  const proto::StepInfo &step;
  ModelProto *header; ///< null unless the module goes back into a file
  bool faithful;      ///< keep details that only the file needs
  MLIRContext *context;
  OpBuilder builder;
  llvm::StringMap<Value> values;
  std::vector<std::pair<std::string, Value>> *shadowed = nullptr; ///< outer values of a subgraph's names
  llvm::StringMap<Type> types;
  llvm::StringMap<Source> sources; ///< by initializer
};
} // namespace

/// Returns the types that its names had before, null for new ones.
ModuleBuilder::Types ModuleBuilder::addTypes(const GraphProto &graph) {
  Types before;
  for (const auto *list : {&graph.input(), &graph.value_info(), &graph.output()})
    for (const ValueInfoProto &info : *list) {
      Type &type = types[info.name()];
      before.emplace_back(info.name(), type);
      type = typeOf(info.type());
    }
  return before;
}

void ModuleBuilder::define(StringRef name, Value value) {
  Value &known = values[name];
  if (shadowed)
    shadowed->emplace_back(name.str(), known);
  known = value;
}

FailureOr<Value> ModuleBuilder::lookup(StringRef name, Location loc) {
  if (name.empty())
    return Value(mpt::onnx::AbsentOp::create(builder, loc, NoneType::get(context)));
  auto found = values.find(name);
  if (found == values.end())
    return emitError(loc) << "expected a defined value, got '" << name << "'";
  return found->second;
}

LogicalResult ModuleBuilder::addInitializer(TensorProto &tensor, func::FuncOp main) {
  Location loc = proto::namedLoc(context, tensor.name());
  FailureOr<ElementsAttr> value =
      step.zeros.contains(tensor.name()) ? proto::zerosAttr(tensor, loc) : proto::tensorAttr(tensor, folder, loc);
  if (failed(value))
    return failure();
  auto type = cast<RankedTensorType>(value->getType());
  auto known = step.states.find(tensor.name());
  bool isState = known != step.states.end();
  // In a training step only the tensors that it names are state, and others may be operands that must be constant.
  bool small = !step.states.empty() && type.getNumElements() <= smallConstant;
  bool changes = isState || step.renewed.contains(tensor.name());
  if (!changes && (small || !isa<FloatType>(type.getElementType()) || type.getNumElements() == 0)) {
    sources[tensor.name()] = {*value, "", type};
    bring(tensor.name(), loc);
    return success();
  }
  proto::StepState state;
  state.role = train::Role::constant;
  state.name = tensor.name();
  if (isState)
    state = known->second;
  std::string symbol = train::TrainDialect::symbolOf(state.name);
  OpBuilder top(main);
  train::StateOp::create(
      top, loc, builder.getStringAttr(symbol), TypeAttr::get(type), train::RoleAttr::get(context, state.role),
      state.of.empty() ? StringAttr() : builder.getStringAttr(train::TrainDialect::symbolOf(state.of)), *value,
      state.frozen ? builder.getUnitAttr() : UnitAttr(), StringAttr());
  sources[tensor.name()] = {{}, symbol, type};
  bring(tensor.name(), loc);
  return success();
}

/// Gives the function at hand the value of an initializer.
void ModuleBuilder::bring(StringRef name, Location loc) {
  const Source &source = sources[name];
  values[name] =
      source.value
          ? Value(mpt::ConstantOp::create(builder, loc, source.value))
          : Value(train::ReadOp::create(builder, loc, source.type, FlatSymbolRefAttr::get(context, source.state)));
}

/// An initializer of a graph that goes back into a file; elements that the IR does not know stay text.
LogicalResult ModuleBuilder::addUnchanged(TensorProto &tensor) {
  Location loc = proto::namedLoc(context, tensor.name());
  Attribute value;
  Type type;
  if (proto::elementType(context, tensor.data_type())) {
    FailureOr<ElementsAttr> elements = proto::tensorAttr(tensor, folder, loc);
    if (failed(elements))
      return failure();
    value = *elements;
    type = elements->getType();
  } else {
    if (tensor.data_location() == TensorProto::EXTERNAL)
      return emitError(loc) << "expected numbers of 8 bits or more in external data, got ONNX data type "
                            << tensor.data_type();
    std::string text;
    google::protobuf::TextFormat::PrintToString(tensor, &text);
    value = builder.getStringAttr(text);
    type = NoneType::get(context);
  }
  auto op = mpt::onnx::InitializerOp::create(builder, loc, type, builder.getStringAttr(tensor.name()), value);
  op.setExternal(tensor.data_location() == TensorProto::EXTERNAL);
  define(tensor.name(), op);
  return success();
}

FailureOr<Attribute> ModuleBuilder::attribute(AttributeProto &attr, Location loc) {
  auto ints = [&](const auto &values) -> Attribute {
    return builder.getDenseI64ArrayAttr(SmallVector<int64_t>(values.begin(), values.end()));
  };
  switch (attr.type()) {
  case AttributeProto::INT:
    return Attribute(builder.getI64IntegerAttr(attr.i()));
  case AttributeProto::FLOAT:
    return Attribute(builder.getF32FloatAttr(attr.f()));
  case AttributeProto::STRING:
    return Attribute(builder.getStringAttr(attr.s()));
  case AttributeProto::INTS:
    return ints(attr.ints());
  case AttributeProto::FLOATS:
    return Attribute(builder.getDenseF32ArrayAttr(SmallVector<float>(attr.floats().begin(), attr.floats().end())));
  case AttributeProto::STRINGS: {
    SmallVector<Attribute> strings;
    for (const std::string &text : attr.strings())
      strings.push_back(builder.getStringAttr(text));
    return Attribute(builder.getArrayAttr(strings));
  }
  case AttributeProto::TENSOR: {
    FailureOr<ElementsAttr> value = proto::tensorAttr(*attr.mutable_t(), folder, loc);
    if (failed(value))
      return failure();
    return Attribute(*value);
  }
  default:
    return emitError(loc) << "expected attribute '" << attr.name()
                          << "' to be numbers, strings, a tensor or a graph, got attribute type "
                          << static_cast<int>(attr.type());
  }
}

/// False for attributes that only their text can carry.
static bool hasForm(const AttributeProto &attr, MLIRContext *context) {
  switch (attr.type()) {
  case AttributeProto::INT:
  case AttributeProto::FLOAT:
  case AttributeProto::STRING:
  case AttributeProto::INTS:
  case AttributeProto::FLOATS:
  case AttributeProto::STRINGS:
    return attr.ref_attr_name().empty();
  case AttributeProto::TENSOR:
    return attr.ref_attr_name().empty() && proto::elementType(context, attr.t().data_type());
  default:
    return false;
  }
}

/// Everything of a subgraph but its nodes and initializers.
static std::string headerText(const GraphProto &graph) {
  GraphProto header;
  proto::copyHeader(graph, header);
  std::string text;
  google::protobuf::TextFormat::PrintToString(header, &text);
  return text;
}

LogicalResult ModuleBuilder::addNode(NodeProto &node) {
  Location loc = proto::namedLoc(context, proto::nodeName(node));
  SmallVector<Value> operands;
  for (const std::string &input : node.input()) {
    FailureOr<Value> value = lookup(input, loc);
    if (failed(value))
      return failure();
    operands.push_back(*value);
  }
  std::optional<int64_t> ownVersion = mpt::onnx::versionOfDomain(node.domain());
  StringRef domain = node.domain() == "ai.onnx" || ownVersion ? StringRef() : StringRef(node.domain());
  int64_t version = ownVersion.value_or(proto::opsetVersion(*model, domain));
  NamedAttrList attrs;
  SmallVector<GraphProto *> graphs;
  SmallVector<Attribute> graphNames, opaque;
  for (AttributeProto &attr : *node.mutable_attribute()) {
    if (attr.type() == AttributeProto::GRAPH) {
      graphs.push_back(attr.mutable_g());
      graphNames.push_back(builder.getStringAttr(attr.name()));
      continue;
    }
    if (faithful && !hasForm(attr, context)) {
      std::string text;
      google::protobuf::TextFormat::PrintToString(attr, &text);
      opaque.push_back(builder.getStringAttr(text));
      continue;
    }
    if (attr.type() == AttributeProto::TYPE_PROTO)
      continue; // of Optional alone: inference has taken it
    FailureOr<Attribute> value = attribute(attr, loc);
    if (failed(value))
      return failure();
    if (attr.name().empty())
      return emitError(loc) << "expected a name for every attribute, got none";
    if (attrs.set(builder.getStringAttr(attr.name()), *value))
      return emitError(loc) << "expected distinct attributes, got '" << attr.name() << "' twice";
  }
  SmallVector<Type> results;
  for (const std::string &output : node.output())
    results.push_back(typeOf(output));
  StringRef opType = node.op_type();
  if (faithful && domain.empty() && opType == "CastLike" && operands.size() == 2)
    if (auto like = dyn_cast<TensorType>(operands[1].getType())) {
      // The second operand says a type and nothing else; a Cast says it without reading a tensor.
      opType = "Cast";
      operands.pop_back();
      attrs.set("to", builder.getI64IntegerAttr(mpt::onnx::elementTypeNumber(like.getElementType())));
    }
  auto op = mpt::onnx::NodeOp::create(builder, loc, results, operands, builder.getStringAttr(domain),
                                      builder.getStringAttr(opType), builder.getI64IntegerAttr(version),
                                      attrs.getDictionary(context),
                                      graphs.empty() ? ArrayAttr() : builder.getArrayAttr(graphNames), ArrayAttr(),
                                      StringAttr(), ArrayAttr(), ArrayAttr(), UnitAttr(), graphs.size());
  if (faithful)
    keepDetails(op, node, opaque);
  SmallVector<Attribute> headers;
  for (auto [region, graph] : llvm::zip_equal(op.getBodies(), graphs)) {
    if (faithful)
      headers.push_back(builder.getStringAttr(headerText(*graph)));
    if (failed(addBody(region, *graph, loc)))
      return failure();
  }
  if (!headers.empty())
    op.setGraphsAttr(builder.getArrayAttr(headers));
  for (auto [name, value] : llvm::zip_equal(node.output(), op.getResults()))
    if (!name.empty())
      define(name, value);
  return success();
}

/// Names of results, and other details of a node that no pass asks for.
void ModuleBuilder::keepDetails(mpt::onnx::NodeOp op, NodeProto &node, ArrayRef<Attribute> opaque) {
  SmallVector<Attribute> names;
  for (const std::string &output : node.output())
    names.push_back(builder.getStringAttr(output));
  op.setOutputNamesAttr(builder.getArrayAttr(names));
  if (!opaque.empty())
    op.setOpaqueAttr(builder.getArrayAttr(opaque));
  op.setUnnamed(node.name().empty());
  NodeProto rest;
  if (node.has_doc_string())
    rest.set_doc_string(node.doc_string());
  if (node.has_overload())
    rest.set_overload(node.overload());
  rest.mutable_metadata_props()->Swap(node.mutable_metadata_props());
  if (rest.ByteSizeLong() == 0)
    return;
  std::string text;
  google::protobuf::TextFormat::PrintToString(rest, &text);
  op.setDetailsAttr(builder.getStringAttr(text));
}

/// A subgraph sees the outer values and may define names of its own, which end with it.
LogicalResult ModuleBuilder::addBody(Region &region, GraphProto &graph, Location loc) {
  std::vector<std::pair<std::string, Value>> outer;
  llvm::SaveAndRestore saved(shadowed, &outer);
  OpBuilder::InsertionGuard guard(builder);
  Block &block = region.emplaceBlock();
  Types outerTypes = addTypes(graph);
  for (const ValueInfoProto &input : graph.input())
    define(input.name(), block.addArgument(typeOf(input.type()), proto::namedLoc(context, input.name())));
  builder.setInsertionPointToEnd(&block);
  for (TensorProto &tensor : *graph.mutable_initializer()) {
    if (faithful) {
      if (failed(addUnchanged(tensor)))
        return failure();
      continue;
    }
    Location at = proto::namedLoc(context, tensor.name());
    FailureOr<ElementsAttr> value = proto::tensorAttr(tensor, folder, at);
    if (failed(value))
      return failure();
    define(tensor.name(), mpt::ConstantOp::create(builder, at, *value));
  }
  if (failed(addNodes(graph)))
    return failure();
  SmallVector<Value> yielded;
  for (const ValueInfoProto &output : graph.output()) {
    FailureOr<Value> value = lookup(output.name(), loc);
    if (failed(value))
      return failure();
    yielded.push_back(*value);
  }
  mpt::onnx::YieldOp::create(builder, loc, yielded);
  for (auto &[name, value] : llvm::reverse(outer))
    value ? (values[name] = value) : (values.erase(name), Value());
  for (auto &[name, type] : llvm::reverse(outerTypes))
    type ? (types[name] = type) : (types.erase(name), Type());
  return success();
}

LogicalResult ModuleBuilder::addNodes(GraphProto &graph) {
  for (NodeProto &node : *graph.mutable_node())
    if (failed(addNode(node)))
      return failure();
  return success();
}

DictionaryAttr ModuleBuilder::updatesAttr(const llvm::StringMap<std::string> &updates) {
  NamedAttrList entries;
  for (const auto &update : updates)
    entries.set(update.getKey(), FlatSymbolRefAttr::get(context, train::TrainDialect::symbolOf(update.getValue())));
  return entries.getDictionary(context);
}

/// The values of all initializers.
LogicalResult ModuleBuilder::addTensors(func::FuncOp function) {
  llvm::StringSet<> declared;
  if (faithful) {
    for (const ValueInfoProto &input : header->graph().input())
      declared.insert(input.name());
    // Whoever trains with the file replaces these from step to step: a narrow copy beside them would stay as it was.
    for (const ValueInfoProto &output : header->graph().output())
      declared.insert_range(proto::trainedBy(output.name()));
  }
  for (TensorProto &tensor : initializers) {
    if (sources.contains(tensor.name())) {
      bring(tensor.name(), proto::namedLoc(context, tensor.name()));
      continue;
    }
    if (failed(faithful ? addUnchanged(tensor) : addInitializer(tensor, function)))
      return failure();
    // From IR version 4 on, an initializer that is an input too is a default that callers may override, as is a tensor
    // that a backward pass among the nodes trains.
    if (faithful && model->ir_version() >= 4 && declared.contains(tensor.name()))
      values[tensor.name()].getDefiningOp<mpt::onnx::InitializerOp>().setOverridable(true);
  }
  return success();
}

FailureOr<func::FuncOp> ModuleBuilder::addFunction(ModuleOp module, GraphProto &graph, StringRef name) {
  addTypes(graph);
  llvm::StringSet<> tensors;
  for (const TensorProto &tensor : initializers)
    tensors.insert(tensor.name());
  SmallVector<Type> inputTypes;
  SmallVector<const ValueInfoProto *> inputs;
  for (const ValueInfoProto &input : graph.input()) {
    if (tensors.contains(input.name()))
      continue;
    Type type = typeOf(input.name());
    if (!faithful && !isa<RankedTensorType>(type))
      return emitError(proto::namedLoc(context, input.name()))
             << "expected graph input '" << input.name() << "' to be a tensor of numbers";
    inputs.push_back(&input);
    inputTypes.push_back(type);
  }
  builder.setInsertionPointToEnd(module.getBody());
  auto main = func::FuncOp::create(builder, module.getLoc(), name, builder.getFunctionType(inputTypes, {}));
  Block *body = main.addEntryBlock();
  SmallVector<Attribute> inputAttrs; // set together: one by one would copy all of them each time
  for (auto [i, input] : llvm::enumerate(inputs)) {
    inputAttrs.push_back(
        builder.getDictionaryAttr(namedAttr<MPTDialect::NameAttrHelper>(builder.getStringAttr(input->name()))));
    body->getArgument(i).setLoc(proto::namedLoc(context, input->name()));
    values[input->name()] = body->getArgument(i);
  }
  main.setArgAttrsAttr(builder.getArrayAttr(inputAttrs));
  builder.setInsertionPointToEnd(body);
  if (failed(addTensors(main)) || failed(addNodes(graph)))
    return failure();
  SmallVector<Value> results;
  SmallVector<Attribute> resultAttrs;
  for (const ValueInfoProto &output : graph.output()) {
    FailureOr<Value> value = lookup(output.name(), proto::namedLoc(context, output.name()));
    if (failed(value))
      return failure();
    results.push_back(*value);
    resultAttrs.push_back(
        builder.getDictionaryAttr(namedAttr<MPTDialect::NameAttrHelper>(builder.getStringAttr(output.name()))));
  }
  func::ReturnOp::create(builder, module.getLoc(), results);
  main.setFunctionType(builder.getFunctionType(inputTypes, ValueRange(results).getTypes()));
  main.setResAttrsAttr(builder.getArrayAttr(resultAttrs));
  return main;
}

FailureOr<OwningOpRef<ModuleOp>> ModuleBuilder::build(StringRef name) {
  OwningOpRef<ModuleOp> module = ModuleOp::create(proto::namedLoc(context, name));
  setAttr<MPTDialect::NameAttrHelper>(*module, builder.getStringAttr(name));
  setAttr<mpt::onnx::ONNXDialect::ProducerAttrHelper>(*module, builder.getStringAttr(model->producer_name()));
  if (faithful) {
    *header->mutable_opset_import() = model->opset_import(); // inlining may have added domains
    *header->mutable_functions() = model->functions();       // that are not inlined
    proto::forgetVersions(*header);
    std::string text;
    google::protobuf::TextFormat::PrintToString(*header, &text);
    setAttr<mpt::onnx::ONNXDialect::ModelAttrHelper>(*module, builder.getStringAttr(text));
  }
  if (!step.updates.empty())
    setAttr<MPTDialect::StepAttrHelper>(*module, updatesAttr(step.updates));
  if (failed(addFunction(*module, *model->mutable_graph(), "main")))
    return failure();
  return module;
}

LogicalResult ModuleBuilder::addAlgorithm(ModuleOp module, proto::Algorithm &algorithm, StringRef name) {
  model = &algorithm.model;
  values.clear();
  types.clear();
  FailureOr<func::FuncOp> function = addFunction(module, *model->mutable_graph(), name);
  if (failed(function))
    return failure();
  setAttr<MPTDialect::NameAttrHelper>(*function, builder.getStringAttr(algorithm.name));
  setAttr<MPTDialect::StepAttrHelper>(*function, updatesAttr(algorithm.updates));
  return success();
}

FailureOr<OwningOpRef<ModuleOp>> proto::buildModule(ModelProto &model, std::vector<TensorProto> &initializers,
                                                    StringRef folder, const ImportOptions &options,
                                                    MLIRContext *context, const StepInfo &step, ModelProto *header,
                                                    Algorithms *algorithms) {
  StringRef name = options.name.empty() ? "model" : StringRef(options.name);
  ModuleBuilder builder(model, initializers, folder, step, header, context);
  FailureOr<OwningOpRef<ModuleOp>> module = builder.build(name);
  if (failed(module) || !algorithms)
    return module;
  for (auto [i, algorithm] : llvm::enumerate(algorithms->steps))
    if (failed(builder.addAlgorithm(**module, algorithm, "algorithm." + std::to_string(i))))
      return failure();
  if (algorithms->initialization &&
      failed(builder.addAlgorithm(**module, *algorithms->initialization, "initialization")))
    return failure();
  return module;
}
