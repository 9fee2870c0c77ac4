// Nodes, attributes and tensors of an ONNX graph under construction.
#include "Writer.h"

#include "ModelFile.h"
#include "mpt/Dialect/ONNX/NodeTypes.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;

int mpt::onnxElementType(Type type) { return mpt::onnx::elementTypeNumber(type); }

OnnxAttribute::OnnxAttribute(StringRef name, int64_t value) {
  proto.set_name(name.str());
  proto.set_type(pb::AttributeProto::INT);
  proto.set_i(value);
}
OnnxAttribute::OnnxAttribute(StringRef name, double value) {
  proto.set_name(name.str());
  proto.set_type(pb::AttributeProto::FLOAT);
  proto.set_f(static_cast<float>(value));
}
OnnxAttribute::OnnxAttribute(StringRef name, StringRef value) {
  proto.set_name(name.str());
  proto.set_type(pb::AttributeProto::STRING);
  proto.set_s(value.str());
}
OnnxAttribute::OnnxAttribute(StringRef name, ArrayRef<int64_t> values) {
  proto.set_name(name.str());
  proto.set_type(pb::AttributeProto::INTS);
  for (int64_t value : values)
    proto.add_ints(value);
}

std::string OnnxWriter::unique(StringRef hint) {
  std::string name = hint.str();
  for (unsigned i = 1; !used.insert(name).second; ++i)
    name = (hint + "_" + Twine(i)).str();
  return name;
}

void OnnxWriter::startOp(Location loc) {
  auto name = dyn_cast<NameLoc>(loc);
  prefix = name ? name.getName().str() : "value";
}

OnnxValue OnnxWriter::node(StringRef type, ArrayRef<OnnxValue> inputs, ArrayRef<OnnxAttribute> attributes) {
  return nodeWith(type, inputs, 1, attributes).front();
}

SmallVector<OnnxValue> OnnxWriter::nodeWith(StringRef type, ArrayRef<OnnxValue> inputs, size_t results,
                                            ArrayRef<OnnxAttribute> attributes) {
  pb::NodeProto &node = *graph.add_node();
  node.set_op_type(type.str());
  for (const OnnxValue &input : inputs)
    node.add_input(input);
  SmallVector<OnnxValue> names;
  for (size_t i = 0; i < results; ++i) {
    names.push_back(unique(prefix + "/" + type.str()));
    node.add_output(names.back());
  }
  node.set_name(names.front());
  for (const OnnxAttribute &attribute : attributes)
    *node.add_attribute() = attribute.proto;
  return names;
}

OnnxValue OnnxWriter::initializer(ElementsAttr value, StringRef name) {
  pb::TensorProto &tensor = *graph.add_initializer();
  tensor.set_name(unique(name));
  tensor.set_data_type(onnxElementType(value.getElementType()));
  for (int64_t extent : value.getShapedType().getShape())
    tensor.add_dims(extent);
  appendRaw(value, *tensor.mutable_raw_data());
  return tensor.name();
}

OnnxValue OnnxWriter::indices(ArrayRef<int64_t> values) {
  pb::TensorProto &tensor = *graph.add_initializer();
  tensor.set_name(unique(prefix + "/indices"));
  tensor.set_data_type(pb::TensorProto::INT64);
  tensor.add_dims(values.size());
  tensor.mutable_raw_data()->assign(reinterpret_cast<const char *>(values.data()), values.size() * sizeof(int64_t));
  return tensor.name();
}

OnnxValue OnnxWriter::scalar(Type type, double value) {
  auto tensor = RankedTensorType::get({}, type);
  if (auto real = dyn_cast<FloatType>(type)) {
    APFloat number(value);
    bool loses;
    number.convert(real.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return initializer(DenseElementsAttr::get(tensor, number), prefix + "/scalar");
  }
  APInt number(type.getIntOrFloatBitWidth(), static_cast<int64_t>(value), /*isSigned=*/true, /*implicitTrunc=*/true);
  return initializer(DenseElementsAttr::get(tensor, number), prefix + "/scalar");
}

OnnxValue OnnxWriter::cast(OnnxValue x, Type from, Type to) {
  return from == to ? x : node("Cast", {x}, {{"to", int64_t(onnxElementType(to))}});
}

OnnxValue OnnxWriter::transpose(OnnxValue x, ArrayRef<int64_t> permutation) {
  return node("Transpose", {x}, {{"perm", permutation}});
}
