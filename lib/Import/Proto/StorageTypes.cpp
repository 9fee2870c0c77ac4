// SPDX-License-Identifier: Apache-2.0
// Values of types that core does not compute in become values of bytes; nodes around them decode and encode these.
#include "Proto.h"

#include "../StorageTypes.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
/// The operators that move elements without looking at them.
const llvm::StringSet<> &movers() {
  static const llvm::StringSet<> names = {"Identity", "Reshape", "Transpose",    "Squeeze",     "Unsqueeze", "Flatten",
                                          "Shape",    "Size",    "Slice",        "Concat",      "Expand",    "Gather",
                                          "Tile",     "Split",   "DepthToSpace", "SpaceToDepth"};
  return names;
}

class StorageLowering {
public:
  StorageLowering(ModelProto &model, MLIRContext *context) : model(model), context(context) {}
  LogicalResult run();

private:
  void take(ValueInfoProto &value);
  int typeOf(const std::string &name) const { return types.lookup(name); }
  LogicalResult rewrite(NodeProto &node);
  void addCast(NodeProto &node, int input, int to);
  static void setInt(NodeProto &node, const char *name, int64_t value);
  void move(NodeProto &node, const char *opType);

  ModelProto &model;
  MLIRContext *context;
  llvm::StringMap<int> types;             ///< of values in such types
  llvm::StringMap<ValueInfoProto> shapes; ///< of all values, as they were
  google::protobuf::RepeatedPtrField<NodeProto> nodes;
  std::vector<ValueInfoProto> added;
};
} // namespace

void StorageLowering::take(ValueInfoProto &value) {
  if (!value.type().has_tensor_type() || !isStorageType(value.type().tensor_type().elem_type()))
    return;
  int type = value.type().tensor_type().elem_type();
  types[value.name()] = type;
  bool isSigned = type == TensorProto::INT4 || type == TensorProto::INT2;
  value.mutable_type()->mutable_tensor_type()->set_elem_type(isSigned ? TensorProto::INT8 : TensorProto::UINT8);
}

void StorageLowering::setInt(NodeProto &node, const char *name, int64_t value) {
  for (AttributeProto &attribute : *node.mutable_attribute())
    if (attribute.name() == name) {
      attribute.set_i(value);
      return;
    }
  AttributeProto &attribute = *node.add_attribute();
  attribute.set_name(name);
  attribute.set_type(AttributeProto::INT);
  attribute.set_i(value);
}

void StorageLowering::move(NodeProto &node, const char *opType) {
  node.set_domain(storageDomain.str());
  node.set_op_type(opType);
}

/// Puts a cast to a float type before an input of `node`.
void StorageLowering::addCast(NodeProto &node, int input, int to) {
  std::string from = node.input(input), name = from + ".decoded." + std::to_string(nodes.size());
  NodeProto &cast = *nodes.Add();
  move(cast, "Cast");
  cast.set_name(proto::nodeName(node).str());
  cast.add_input(from);
  cast.add_output(name);
  setInt(cast, "from", typeOf(from));
  setInt(cast, "to", to);
  ValueInfoProto &value = added.emplace_back(shapes.lookup(from));
  value.set_name(name);
  value.mutable_type()->mutable_tensor_type()->set_elem_type(to);
  node.set_input(input, name);
}

/// Writes `node`, and the nodes that it needs before it, for operands and results that are bytes now.
LogicalResult StorageLowering::rewrite(NodeProto &node) {
  auto typeOfOperand = [&](int i) { return i < node.input_size() ? typeOf(node.input(i)) : 0; };
  int from = typeOfOperand(0), to = node.output_size() ? typeOf(node.output(0)) : 0;
  bool any = llvm::any_of(node.input(), [&](const std::string &name) { return typeOf(name) != 0; }) ||
             llvm::any_of(node.output(), [&](const std::string &name) { return typeOf(name) != 0; });
  bool isStandard = node.domain().empty() || node.domain() == "ai.onnx";
  StringRef op = node.op_type();
  // A Constant's tensor is unpacked where it is read.
  if (!any || (isStandard && (movers().contains(op) || op == "Constant"))) {
    nodes.Add()->CopyFrom(node);
    return success();
  }
  if (isStandard && (op == "Cast" || op == "CastLike")) {
    int target = to;
    if (!target)
      target = shapes.lookup(node.output(0)).type().tensor_type().elem_type();
    while (node.input_size() > 1)
      node.mutable_input()->RemoveLast();
    move(node, "Cast");
    setInt(node, "from", from);
    setInt(node, "to", target);
  } else if (isStandard && op == "QuantizeLinear" && to) {
    if (typeOfOperand(2))
      addCast(node, 2, TensorProto::FLOAT);
    move(node, "QuantizeLinear");
    setInt(node, "to", to);
  } else if (isStandard && op == "DequantizeLinear" && from) {
    addCast(node, 0, TensorProto::FLOAT);
    if (typeOfOperand(2))
      addCast(node, 2, TensorProto::FLOAT);
  } else {
    return emitError(proto::namedLoc(context, proto::nodeName(node)))
           << "expected numbers of 8 bits or more that have arithmetic, got a value of ONNX data type "
           << (from ? from : to) << " at " << op << "; cast it first";
  }
  nodes.Add()->Swap(&node);
  return success();
}

LogicalResult StorageLowering::run() {
  GraphProto &graph = *model.mutable_graph();
  for (auto *values : {graph.mutable_input(), graph.mutable_value_info(), graph.mutable_output()})
    for (ValueInfoProto &value : *values) {
      shapes[value.name()] = value;
      take(value);
    }
  if (types.empty())
    return success();
  for (NodeProto &node : *graph.mutable_node())
    if (failed(rewrite(node)))
      return failure();
  graph.mutable_node()->Swap(&nodes);
  for (ValueInfoProto &value : added)
    graph.add_value_info()->Swap(&value);
  OperatorSetIdProto &opset = *model.add_opset_import();
  opset.set_domain(storageDomain.str());
  opset.set_version(1);
  return success();
}

LogicalResult proto::lowerStorageTypes(ModelProto &model, MLIRContext *context) {
  return StorageLowering(model, context).run();
}
