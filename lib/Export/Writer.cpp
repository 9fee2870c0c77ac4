// SPDX-License-Identifier: Apache-2.0
// Nodes, attributes and tensors of an ONNX graph under construction.
#include "Writer.h"

#include "mpt/Dialect/ONNX/NodeTypes.h"
#include "mpt/Export/Export.h"

#include "llvm/ADT/StringSwitch.h"

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
  for (unsigned i = 1; !parts.names.insert(name).second; ++i)
    name = (hint + "_" + Twine(i)).str();
  return name;
}

bool OnnxWriter::isWidened(Value value) const { return parts.widens && elementOf(value).isBF16(); }

FloatType OnnxWriter::innerType() const {
  return parts.portable ? FloatType(Float32Type::get(context)) : FloatType(Float64Type::get(context));
}

void OnnxWriter::startOp(Location loc) {
  auto name = dyn_cast<NameLoc>(loc);
  prefix = name ? name.getName().str() : "value";
}

OnnxValue OnnxWriter::node(StringRef type, ArrayRef<OnnxValue> inputs, ArrayRef<OnnxAttribute> attributes) {
  return nodeWith(type, inputs, 1, attributes).front();
}

/// Element type of result `index`, by the typing rules of the operators that exported graphs hold.
static int resultKind(StringRef type, ArrayRef<int> inputs, ArrayRef<OnnxAttribute> attributes, size_t index) {
  if (type == "Cast")
    return static_cast<int>(attributes.front().proto.i());
  if (type == "Where")
    return inputs[1];
  return llvm::StringSwitch<int>(type)
      .Cases({"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"}, pb::TensorProto::BOOL)
      .Cases({"ArgMax", "ArgMin", "Shape", "Range"}, pb::TensorProto::INT64)
      .Case("MaxPool", index == 1 ? static_cast<int>(pb::TensorProto::INT64) : inputs.front())
      .Default(inputs.empty() ? 0 : inputs.front());
}

/// The type in which an operator is computed instead of bf16. Basic arithmetic rounded to f32 and then to bf16 is
/// rounded as if once (Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995); functions are
/// computed in double.
static int wideKind(StringRef type) {
  return llvm::StringSwitch<int>(type)
      .Cases({"Exp", "Log", "Sin", "Cos", "Tanh", "Sigmoid", "Pow"}, pb::TensorProto::DOUBLE)
      .Default(pb::TensorProto::FLOAT);
}

SmallVector<OnnxValue> OnnxWriter::append(StringRef type, ArrayRef<OnnxValue> inputs, size_t results,
                                          ArrayRef<OnnxAttribute> attributes, StringRef domain) {
  pb::NodeProto node;
  node.set_op_type(type.str());
  node.set_domain(domain.str());
  SmallVector<int> kinds;
  for (const OnnxValue &input : inputs) {
    node.add_input(input);
    kinds.push_back(parts.kinds.lookup(input));
  }
  for (const OnnxAttribute &attribute : attributes)
    *node.add_attribute() = attribute.proto;
  // No operator that is written draws numbers of its own: equal nodes have equal results.
  SmallVector<OnnxValue> &names = known[node.SerializeAsString()];
  if (names.size() >= results)
    return {names.begin(), names.begin() + results};
  names.clear();
  for (size_t i = 0; i < results; ++i) {
    names.push_back(unique(prefix + "/" + type.str()));
    node.add_output(names.back());
    parts.kinds[names.back()] = domain.empty() ? resultKind(type, kinds, attributes, i) : int(pb::TensorProto::INT64);
  }
  node.set_name(names.front());
  *graph.add_node() = std::move(node);
  return names;
}

SmallVector<OnnxValue> OnnxWriter::nodeWith(StringRef type, ArrayRef<OnnxValue> inputs, size_t results,
                                            ArrayRef<OnnxAttribute> attributes) {
  constexpr int narrow = pb::TensorProto::BFLOAT16;
  bool moves = type == "Cast" || type == "Reshape" || type == "Transpose";
  auto isNarrow = [&](const OnnxValue &value) { return parts.kinds.lookup(value) == narrow; };
  if (!parts.widens || moves || llvm::none_of(inputs, isNarrow))
    return append(type, inputs, results, attributes);
  int wide = wideKind(type);
  SmallVector<OnnxValue> widened, values;
  for (const OnnxValue &input : inputs)
    widened.push_back(isNarrow(input) ? append("Cast", {input}, 1, {{"to", int64_t(wide)}}).front() : input);
  for (OnnxValue &value : append(type, widened, results, attributes))
    values.push_back(parts.kinds.lookup(value) == wide ? append("Cast", {value}, 1, {{"to", int64_t(narrow)}}).front()
                                                       : value);
  return values;
}

OnnxValue OnnxWriter::call(StringRef function, ArrayRef<OnnxValue> inputs,
                           llvm::function_ref<void(pb::FunctionProto &)> define) {
  auto [entry, isNew] = parts.functions.try_emplace(function.str());
  if (isNew) {
    entry->second.set_name(function.str());
    entry->second.set_domain(exportDomain.str());
    define(entry->second);
  }
  return append(function, inputs, 1, {}, exportDomain).front();
}

OnnxValue OnnxWriter::initializer(ElementsAttr value, StringRef name, Type element) {
  element = element ? element : value.getElementType();
  OnnxModelParts::Tensor tensor;
  tensor.proto.set_name(unique(name));
  tensor.proto.set_data_type(onnxElementType(element));
  for (int64_t extent : value.getShapedType().getShape())
    tensor.proto.add_dims(extent);
  tensor.payload = {value, element};
  parts.kinds[tensor.proto.name()] = tensor.proto.data_type();
  parts.tensors.push_back(std::move(tensor));
  return parts.tensors.back().proto.name();
}

OnnxValue OnnxWriter::constant(ElementsAttr value, StringRef name) {
  OnnxValue &known = parts.constants[value];
  if (known.empty())
    known = initializer(value, name);
  return known;
}

OnnxValue OnnxWriter::indices(ArrayRef<int64_t> values) {
  Builder builder(context);
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, builder.getI64Type());
  return constant(DenseElementsAttr::get(type, values), prefix + "/indices");
}

OnnxValue OnnxWriter::scalar(Type type, double value) {
  auto tensor = RankedTensorType::get({}, type);
  if (auto real = dyn_cast<FloatType>(type)) {
    APFloat number(value);
    bool loses;
    number.convert(real.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return constant(DenseElementsAttr::get(tensor, number), prefix + "/scalar");
  }
  APInt number(type.getIntOrFloatBitWidth(), static_cast<int64_t>(value), /*isSigned=*/true, /*implicitTrunc=*/true);
  return constant(DenseElementsAttr::get(tensor, number), prefix + "/scalar");
}

OnnxValue OnnxWriter::integer(int64_t value) {
  auto tensor = RankedTensorType::get({}, IntegerType::get(context, 64));
  return constant(DenseElementsAttr::get(tensor, value), prefix + "/scalar");
}

OnnxValue OnnxWriter::cast(const OnnxValue &x, Type from, Type to) {
  return from == to ? x : node("Cast", {x}, {{"to", int64_t(onnxElementType(to))}});
}

OnnxValue OnnxWriter::getAs(Value value, Type type) { return cast(get(value), elementOf(value), type); }

OnnxValue OnnxWriter::indicesOf(Value value) { return getAs(value, IntegerType::get(value.getContext(), 64)); }

OnnxValue OnnxWriter::transpose(const OnnxValue &x, ArrayRef<int64_t> permutation) {
  return node("Transpose", {x}, {{"perm", permutation}});
}

Type mpt::widerType(Value operand, Value result) {
  return elementOf(operand).getIntOrFloatBitWidth() > elementOf(result).getIntOrFloatBitWidth() ? elementOf(operand)
                                                                                                : elementOf(result);
}

SmallVector<int64_t> mpt::bothPads(ArrayRef<int64_t> low, ArrayRef<int64_t> high) {
  SmallVector<int64_t> pads(low);
  llvm::append_range(pads, high);
  return pads;
}

OnnxValue Arithmetic::in(Value value) { return w.getAs(value, type); }
OnnxValue Arithmetic::out(const OnnxValue &value, Value like) { return w.cast(value, type, elementOf(like)); }
