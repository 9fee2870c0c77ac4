// A prepared model to a module of onnx.node ops.
#include "Proto.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include "onnx/defs/schema.h"

using namespace mlir;
using namespace mpt;
using ::onnx::AttributeProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::TensorProto;
using ::onnx::ValueInfoProto;

Type proto::valueType(MLIRContext *context, const ::onnx::TypeProto &type) {
  if (type.has_sequence_type())
    return TupleType::get(context, {valueType(context, type.sequence_type().elem_type())});
  if (!type.has_tensor_type())
    return NoneType::get(context);
  Type element = elementType(context, type.tensor_type().elem_type());
  if (!element)
    return NoneType::get(context);
  if (!type.tensor_type().has_shape())
    return UnrankedTensorType::get(element);
  SmallVector<int64_t> shape;
  for (const auto &dim : type.tensor_type().shape().dim())
    shape.push_back(dim.has_dim_value() && dim.dim_value() >= 0 ? dim.dim_value() : ShapedType::kDynamic);
  return RankedTensorType::get(shape, element);
}

namespace {
class ModuleBuilder {
public:
  ModuleBuilder(ModelProto &model, std::vector<TensorProto> &initializers, StringRef folder, MLIRContext *context)
      : model(model), initializers(initializers), folder(folder), context(context), builder(context) {}

  FailureOr<OwningOpRef<ModuleOp>> build(StringRef name);

private:
  LogicalResult addInitializer(TensorProto &tensor, ModuleOp module);
  LogicalResult addNodes(GraphProto &graph);
  LogicalResult addNode(NodeProto &node);
  FailureOr<Attribute> attribute(AttributeProto &attr, Location loc);
  FailureOr<Value> lookup(StringRef name, Location loc);
  Type typeOf(StringRef name) {
    auto found = types.find(name);
    return found == types.end() ? NoneType::get(context) : found->second;
  }
  void addTypes(const GraphProto &graph);

  ModelProto &model;
  std::vector<TensorProto> &initializers;
  StringRef folder;
  MLIRContext *context;
  OpBuilder builder;
  llvm::StringMap<Value> values;
  llvm::StringMap<Type> types;
};
} // namespace

void ModuleBuilder::addTypes(const GraphProto &graph) {
  for (const auto *list : {&graph.input(), &graph.value_info(), &graph.output()})
    for (const ValueInfoProto &info : *list)
      types[info.name()] = proto::valueType(context, info.type());
}

FailureOr<Value> ModuleBuilder::lookup(StringRef name, Location loc) {
  if (name.empty())
    return Value(mpt::onnx::AbsentOp::create(builder, loc, NoneType::get(context)));
  auto found = values.find(name);
  if (found == values.end())
    return emitError(loc) << "expected a defined value, got '" << name << "'";
  return found->second;
}

LogicalResult ModuleBuilder::addInitializer(TensorProto &tensor, ModuleOp module) {
  Location loc = proto::namedLoc(context, tensor.name());
  FailureOr<ElementsAttr> value = proto::tensorAttr(tensor, folder, loc);
  if (failed(value))
    return failure();
  auto type = cast<RankedTensorType>(value->getType());
  if (!isa<FloatType>(type.getElementType()) || type.getNumElements() == 0) {
    values[tensor.name()] = mpt::ConstantOp::create(builder, loc, *value);
    return success();
  }
  OpBuilder top = OpBuilder::atBlockBegin(module.getBody());
  if (Operation *main = module.lookupSymbol("main"))
    top.setInsertionPoint(main);
  train::StateOp::create(top, loc, StringAttr::get(context, tensor.name()), TypeAttr::get(type),
                         train::RoleAttr::get(context, train::Role::constant), StringAttr(), *value, UnitAttr());
  values[tensor.name()] = train::ReadOp::create(builder, loc, type, FlatSymbolRefAttr::get(context, tensor.name()));
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

LogicalResult ModuleBuilder::addNode(NodeProto &node) {
  Location loc = proto::namedLoc(context, proto::nodeName(node));
  SmallVector<Value> operands;
  for (const std::string &input : node.input()) {
    FailureOr<Value> value = lookup(input, loc);
    if (failed(value))
      return failure();
    operands.push_back(*value);
  }
  StringRef domain = node.domain() == "ai.onnx" ? StringRef() : StringRef(node.domain());
  NamedAttrList attrs;
  SmallVector<GraphProto *> graphs;
  SmallVector<Attribute> graphNames;
  for (AttributeProto &attr : *node.mutable_attribute()) {
    if (attr.type() == AttributeProto::GRAPH) {
      graphs.push_back(attr.mutable_g());
      graphNames.push_back(builder.getStringAttr(attr.name()));
      continue;
    }
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
  auto op = mpt::onnx::NodeOp::create(
      builder, loc, results, operands, builder.getStringAttr(domain), builder.getStringAttr(node.op_type()),
      builder.getI64IntegerAttr(proto::opsetVersion(model, domain)), attrs.getDictionary(context),
      graphs.empty() ? ArrayAttr() : builder.getArrayAttr(graphNames), graphs.size());
  for (auto [region, graph] : llvm::zip_equal(op.getBodies(), graphs)) {
    // A subgraph sees the outer values and may define names of its own, which end with it.
    auto outer = values;
    OpBuilder::InsertionGuard guard(builder);
    Block &block = region.emplaceBlock();
    addTypes(*graph);
    for (const ValueInfoProto &input : graph->input())
      values[input.name()] =
          block.addArgument(proto::valueType(context, input.type()), proto::namedLoc(context, input.name()));
    builder.setInsertionPointToEnd(&block);
    for (TensorProto &tensor : *graph->mutable_initializer()) {
      FailureOr<ElementsAttr> value = proto::tensorAttr(tensor, folder, proto::namedLoc(context, tensor.name()));
      if (failed(value))
        return failure();
      values[tensor.name()] = mpt::ConstantOp::create(builder, loc, *value);
    }
    if (failed(addNodes(*graph)))
      return failure();
    SmallVector<Value> yielded;
    for (const ValueInfoProto &output : graph->output()) {
      FailureOr<Value> value = lookup(output.name(), loc);
      if (failed(value))
        return failure();
      yielded.push_back(*value);
    }
    mpt::onnx::YieldOp::create(builder, loc, yielded);
    values = std::move(outer);
  }
  for (auto [name, value] : llvm::zip_equal(node.output(), op.getResults()))
    if (!name.empty())
      values[name] = value;
  return success();
}

LogicalResult ModuleBuilder::addNodes(GraphProto &graph) {
  for (NodeProto &node : *graph.mutable_node())
    if (failed(addNode(node)))
      return failure();
  return success();
}

FailureOr<OwningOpRef<ModuleOp>> ModuleBuilder::build(StringRef name) {
  GraphProto &graph = *model.mutable_graph();
  OwningOpRef<ModuleOp> module = ModuleOp::create(proto::namedLoc(context, name));
  (*module)->setAttr("mpt.name", builder.getStringAttr(name));
  (*module)->setAttr("mpt.producer", builder.getStringAttr(model.producer_name()));
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
    if (!isa<RankedTensorType>(type))
      return emitError(proto::namedLoc(context, input.name()))
             << "expected graph input '" << input.name() << "' to be a tensor of numbers";
    inputs.push_back(&input);
    inputTypes.push_back(type);
  }
  builder.setInsertionPointToEnd(module->getBody());
  auto main = func::FuncOp::create(builder, module->getLoc(), "main", builder.getFunctionType(inputTypes, {}));
  Block *body = main.addEntryBlock();
  for (auto [i, input] : llvm::enumerate(inputs)) {
    main.setArgAttr(i, "mpt.name", builder.getStringAttr(input->name()));
    body->getArgument(i).setLoc(proto::namedLoc(context, input->name()));
    values[input->name()] = body->getArgument(i);
  }
  builder.setInsertionPointToEnd(body);
  for (TensorProto &tensor : initializers)
    if (failed(addInitializer(tensor, *module)))
      return failure();
  if (failed(addNodes(graph)))
    return failure();
  SmallVector<Value> results;
  SmallVector<Attribute> resultAttrs;
  for (const ValueInfoProto &output : graph.output()) {
    FailureOr<Value> value = lookup(output.name(), proto::namedLoc(context, output.name()));
    if (failed(value))
      return failure();
    results.push_back(*value);
    resultAttrs.push_back(
        builder.getDictionaryAttr(builder.getNamedAttr("mpt.name", builder.getStringAttr(output.name()))));
  }
  func::ReturnOp::create(builder, module->getLoc(), results);
  main.setFunctionType(builder.getFunctionType(inputTypes, ValueRange(results).getTypes()));
  main.setResAttrsAttr(builder.getArrayAttr(resultAttrs));
  return module;
}

FailureOr<OwningOpRef<ModuleOp>> proto::buildModule(ModelProto &model, std::vector<TensorProto> &initializers,
                                                    StringRef folder, const ImportOptions &options,
                                                    MLIRContext *context) {
  return ModuleBuilder(model, initializers, folder, context).build(options.name.empty() ? "model" : options.name);
}
