// SPDX-License-Identifier: Apache-2.0
// Graphs of ONNX nodes back to files, one to one.
// Matcher: the dialect onnx, whose few ops are the entries of an ONNX file: node, initializer, absent input, yield.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/ONNXDialect.h"
#include "mpt/Export/Export.h"

#include "ModelFile.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"

#include "llvm/ADT/StringSet.h"

#include "google/protobuf/text_format.h"

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;
using google::protobuf::TextFormat;

namespace {

class NodesExport {
public:
  NodesExport(ModuleOp module, func::FuncOp main) : module(module), main(main) {}

  LogicalResult run(StringRef path) {
    auto header = getAttr<mpt::onnx::ONNXDialect::ModelAttrHelper>(module);
    pb::ModelProto model;
    if (!header || !TextFormat::ParseFromString(header.str(), &model))
      return module.emitError() << "expected onnx.model with the model's header, got none: import a file as nodes";
    pb::GraphProto interface;
    interface.Swap(model.mutable_graph());
    model.clear_graph();
    for (const pb::ValueInfoProto &output : interface.output())
      outputs.insert(output.name());
    retypeInputs(model, interface);
    file.addFields(interface);
    for (Operation &op : main.getBody().front())
      if (failed(addOp(op, interface)))
        return failure();
    return file.write(model, path, external, module.getLoc());
  }

private:
  StringRef nameOf(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto function = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
      if (auto name =
              function ? getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber()) : StringAttr())
        return name.getValue();
      auto loc = dyn_cast<NameLoc>(argument.getLoc());
      return loc ? loc.getName().getValue() : StringRef();
    }
    Operation *op = value.getDefiningOp();
    if (auto initializer = dyn_cast<mpt::onnx::InitializerOp>(op))
      return initializer.getName();
    auto node = dyn_cast<mpt::onnx::NodeOp>(op);
    unsigned index = cast<OpResult>(value).getResultNumber();
    if (node && node.getOutputNames() && index < node.getOutputNames()->size())
      return cast<StringAttr>((*node.getOutputNames())[index]).getValue();
    return {};
  }

  /// Up to IR version 3 every initializer is an input as well: their types go together.
  void retypeInputs(const pb::ModelProto &model, pb::GraphProto &interface) {
    if (model.ir_version() >= 4)
      return;
    llvm::StringMap<pb::ValueInfoProto *> inputs;
    for (pb::ValueInfoProto &input : *interface.mutable_input())
      inputs[input.name()] = &input;
    for (auto initializer : main.getOps<mpt::onnx::InitializerOp>()) {
      auto type = dyn_cast<RankedTensorType>(initializer.getResult().getType());
      if (!type)
        continue;
      pb::ValueInfoProto *&known = inputs[initializer.getName()];
      if (!known)
        known = interface.add_input();
      *known = describe(initializer.getName(), type);
    }
  }

  pb::ValueInfoProto describe(StringRef name, TensorType type) {
    pb::ValueInfoProto info;
    info.set_name(name.str());
    auto &tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(mpt::onnx::elementTypeNumber(type.getElementType()));
    auto ranked = dyn_cast<RankedTensorType>(type);
    if (!ranked)
      return info;
    auto symbols = dyn_cast_or_null<ArrayAttr>(ranked.getEncoding());
    tensor.mutable_shape();
    for (auto [i, extent] : llvm::enumerate(ranked.getShape())) {
      auto &dim = *tensor.mutable_shape()->add_dim();
      if (!ShapedType::isDynamic(extent))
        dim.set_dim_value(extent);
      else if (symbols && !cast<StringAttr>(symbols[i]).empty())
        dim.set_dim_param(cast<StringAttr>(symbols[i]).str());
    }
    return info;
  }

  LogicalResult addOp(Operation &op, const pb::GraphProto &interface) {
    if (isa<mpt::onnx::AbsentOp>(op))
      return success();
    if (auto initializer = dyn_cast<mpt::onnx::InitializerOp>(op)) {
      pb::TensorProto tensor;
      TensorPayload payload;
      if (failed(describeTensor(initializer, tensor, payload)))
        return failure();
      external |= initializer.getExternal();
      file.addInitializer(std::move(tensor), payload);
      return success();
    }
    if (auto node = dyn_cast<mpt::onnx::NodeOp>(op)) {
      pb::NodeProto proto;
      if (failed(fill(node, proto)))
        return failure();
      file.addNode(proto);
      describeResults(node);
      return success();
    }
    if (!isa<func::ReturnOp>(op) || op.getNumOperands() != static_cast<unsigned>(interface.output_size()))
      return op.emitOpError() << "expected onnx.node, onnx.initializer or a return of the model's results";
    for (auto [value, output] : llvm::zip_equal(op.getOperands(), interface.output()))
      if (StringRef name = nameOf(value); name != output.name())
        file.addNode(identity(name, output.name()));
    return success();
  }

  /// Declares the types of results where the file did so, and of nodes that no inference knows.
  void describeResults(mpt::onnx::NodeOp node) {
    if (node.getDomain().empty() && !hasAttr<mpt::onnx::ONNXDialect::DeclaredTypesAttrHelper>(module))
      return;
    for (Value result : node.getOutputs()) {
      StringRef name = nameOf(result);
      auto type = dyn_cast<TensorType>(result.getType());
      if (type && !name.empty() && !outputs.contains(name))
        file.addValueInfo(describe(name, type));
    }
  }

  static pb::NodeProto identity(StringRef from, StringRef to) {
    pb::NodeProto node;
    node.set_op_type("Identity");
    node.add_input(from.str());
    node.add_output(to.str());
    return node;
  }

  LogicalResult describeTensor(mpt::onnx::InitializerOp op, pb::TensorProto &tensor, TensorPayload &payload) {
    if (auto text = dyn_cast<StringAttr>(op.getValue())) {
      if (!TextFormat::ParseFromString(text.str(), &tensor))
        return op.emitOpError() << "expected the text of a TensorProto";
      return success();
    }
    auto value = dyn_cast<ElementsAttr>(op.getValue());
    auto type = dyn_cast<RankedTensorType>(op.getResult().getType());
    if (!value || !type || value.getShapedType().getShape() != type.getShape())
      return op.emitOpError() << "expected elements of the result's shape";
    payload = {value, type.getElementType()};
    bool narrows = value.getElementType() != type.getElementType();
    if (narrows &&
        (!value.getElementType().isF32() || !(type.getElementType().isF16() || type.getElementType().isBF16())))
      return op.emitOpError() << "expected elements of the result's type, or f32 for f16 and bf16, got "
                              << value.getElementType();
    tensor.set_name(op.getName().str());
    tensor.set_data_type(mpt::onnx::elementTypeNumber(type.getElementType()));
    for (int64_t extent : type.getShape())
      tensor.add_dims(extent);
    return success();
  }

  LogicalResult fill(mpt::onnx::NodeOp node, pb::NodeProto &proto) {
    if (StringAttr details = node.getDetailsAttr())
      if (!TextFormat::ParseFromString(details.str(), &proto))
        return node.emitOpError() << "expected the text of a NodeProto in 'details'";
    proto.set_op_type(node.getOpType().str());
    if (!node.getDomain().empty())
      proto.set_domain(node.getDomain().str());
    if (auto name = dyn_cast<NameLoc>(node.getLoc()); name && !node.getUnnamed())
      proto.set_name(name.getName().str());
    for (Value input : node.getInputs())
      proto.add_input(nameOf(input).str());
    for (Value output : node.getOutputs())
      proto.add_output(nameOf(output).str());
    for (NamedAttribute attribute : node.getAttrs())
      if (failed(fill(node, attribute, *proto.add_attribute())))
        return failure();
    if (ArrayAttr opaque = node.getOpaqueAttr())
      for (auto text : opaque.getAsRange<StringAttr>())
        if (!TextFormat::ParseFromString(text.str(), proto.add_attribute()))
          return node.emitOpError() << "expected the text of an AttributeProto in 'opaque'";
    ArrayAttr headers = node.getGraphsAttr();
    for (auto [i, body] : llvm::enumerate(node.getBodies())) {
      pb::AttributeProto &attribute = *proto.add_attribute();
      attribute.set_name(cast<StringAttr>((*node.getRegionNames())[i]).str());
      attribute.set_type(pb::AttributeProto::GRAPH);
      if (!headers || i >= headers.size() ||
          !TextFormat::ParseFromString(cast<StringAttr>(headers[i]).str(), attribute.mutable_g()))
        return node.emitOpError() << "expected the header of each subgraph in 'graphs'";
      if (failed(fill(body, *attribute.mutable_g())))
        return failure();
    }
    return success();
  }

  LogicalResult fill(mpt::onnx::NodeOp node, NamedAttribute from, pb::AttributeProto &to) {
    to.set_name(from.getName().str());
    Attribute value = from.getValue();
    if (auto integer = dyn_cast<IntegerAttr>(value)) {
      to.set_type(pb::AttributeProto::INT);
      to.set_i(integer.getInt());
    } else if (auto number = dyn_cast<FloatAttr>(value)) {
      to.set_type(pb::AttributeProto::FLOAT);
      to.set_f(number.getValue().convertToFloat());
    } else if (auto text = dyn_cast<StringAttr>(value)) {
      to.set_type(pb::AttributeProto::STRING);
      to.set_s(text.str());
    } else if (auto integers = dyn_cast<DenseI64ArrayAttr>(value)) {
      to.set_type(pb::AttributeProto::INTS);
      to.mutable_ints()->Add(integers.asArrayRef().begin(), integers.asArrayRef().end());
    } else if (auto numbers = dyn_cast<DenseF32ArrayAttr>(value)) {
      to.set_type(pb::AttributeProto::FLOATS);
      to.mutable_floats()->Add(numbers.asArrayRef().begin(), numbers.asArrayRef().end());
    } else if (auto texts = dyn_cast<ArrayAttr>(value)) {
      to.set_type(pb::AttributeProto::STRINGS);
      for (auto each : texts.getAsRange<StringAttr>())
        to.add_strings(each.str());
    } else if (auto elements = dyn_cast<ElementsAttr>(value)) {
      to.set_type(pb::AttributeProto::TENSOR);
      pb::TensorProto &tensor = *to.mutable_t();
      tensor.set_data_type(mpt::onnx::elementTypeNumber(elements.getElementType()));
      for (int64_t extent : elements.getShapedType().getShape())
        tensor.add_dims(extent);
      appendRaw(elements, *tensor.mutable_raw_data());
    } else {
      return node.emitOpError() << "expected attribute '" << from.getName().getValue()
                                << "' to be numbers, strings or a tensor, got " << value;
    }
    return success();
  }

  LogicalResult fill(Region &body, pb::GraphProto &graph) {
    for (Operation &op : body.front()) {
      if (auto initializer = dyn_cast<mpt::onnx::InitializerOp>(op)) {
        TensorPayload payload;
        pb::TensorProto &tensor = *graph.add_initializer();
        if (failed(describeTensor(initializer, tensor, payload)))
          return failure();
        if (payload.value) {
          llvm::raw_string_ostream out(*tensor.mutable_raw_data());
          payload.write(out);
        }
      } else if (auto node = dyn_cast<mpt::onnx::NodeOp>(op)) {
        if (failed(fill(node, *graph.add_node())))
          return failure();
      } else if (auto yield = dyn_cast<mpt::onnx::YieldOp>(op)) {
        for (auto [value, output] : llvm::zip(yield.getValues(), graph.output()))
          if (StringRef name = nameOf(value); name != output.name())
            *graph.add_node() = identity(name, output.name());
      } else if (!isa<mpt::onnx::AbsentOp>(op)) {
        return op.emitOpError() << "expected onnx.node, onnx.initializer or onnx.yield";
      }
    }
    return success();
  }

  ModuleOp module;
  func::FuncOp main;
  ModelFile file;
  llvm::StringSet<> outputs;
  bool external = false; ///< the model's data lay beside it
};

} // namespace

LogicalResult mpt::exportNodes(ModuleOp module, StringRef path) {
  auto main = module.lookupSymbol<func::FuncOp>("main");
  if (!main || main.isExternal())
    return module.emitError() << "expected func @main of ONNX nodes, found none";
  return NodesExport(module, main).run(path);
}
