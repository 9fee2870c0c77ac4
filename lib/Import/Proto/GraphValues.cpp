// SPDX-License-Identifier: Apache-2.0
// Values of a graph of nodes.
#include "GraphValues.h"

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

bool proto::isScalarFloat(const ValueInfoProto &info) {
  const auto &type = info.type().tensor_type();
  bool real = type.elem_type() == TensorProto::FLOAT || type.elem_type() == TensorProto::FLOAT16 ||
              type.elem_type() == TensorProto::BFLOAT16 || type.elem_type() == TensorProto::DOUBLE;
  return info.type().has_tensor_type() && real &&
         llvm::all_of(type.shape().dim(), [](const auto &dim) { return dim.dim_value() == 1; });
}

proto::GraphValues::GraphValues(const GraphProto &graph) {
  for (const NodeProto &node : graph.node())
    for (const std::string &output : node.output())
      producers[output] = &node;
  for (const TensorProto &tensor : graph.initializer())
    tensors[tensor.name()] = &tensor;
  for (const ValueInfoProto &input : graph.input())
    inputs[input.name()] = &input;
  for (const NodeProto &node : graph.node())
    for (const std::string &input : node.input())
      if (node.op_type() != "Identity")
        readers[origin(input)].push_back(&node);
}

StringRef proto::GraphValues::origin(StringRef name) const {
  // Nothing has looked for cycles yet.
  for (unsigned steps = 0; steps < producers.size(); ++steps) {
    const NodeProto *node = producers.lookup(name);
    if (!node || node->op_type() != "Identity" || node->input_size() == 0)
      break;
    name = node->input(0);
  }
  return name;
}

ArrayRef<const NodeProto *> proto::GraphValues::readersOf(StringRef name) const {
  auto found = readers.find(origin(name));
  return found == readers.end() ? ArrayRef<const NodeProto *>() : ArrayRef<const NodeProto *>(found->second);
}

const NodeProto *proto::GraphValues::producer(StringRef name) const {
  const NodeProto *node = producers.lookup(origin(name));
  return node && node->domain().empty() ? node : nullptr;
}

const NodeProto *proto::GraphValues::producer(StringRef name, StringRef opType) const {
  const NodeProto *node = producer(name);
  return node && node->op_type() == opType ? node : nullptr;
}

bool proto::GraphValues::isRate(StringRef name) const {
  const ValueInfoProto *input = name == "learning_rate" ? inputs.lookup(name) : nullptr;
  return input && isScalarFloat(*input);
}

SmallVector<StringRef> proto::GraphValues::names() const {
  SmallVector<StringRef> names(producers.keys());
  llvm::append_range(names, tensors.keys());
  return names;
}

std::optional<double> proto::GraphValues::number(StringRef name) const {
  const TensorProto *tensor = tensors.lookup(origin(name));
  if (const NodeProto *node = tensor ? nullptr : producer(name, "Constant"))
    for (const AttributeProto &attr : node->attribute()) {
      if (attr.name() == "value_float")
        return attr.f();
      if (attr.name() == "value" && attr.has_t())
        tensor = &attr.t();
    }
  if (!tensor || tensor->data_type() != TensorProto::FLOAT ||
      llvm::any_of(tensor->dims(), [](int64_t extent) { return extent != 1; }))
    return std::nullopt;
  float value = 0;
  if (tensor->float_data_size() == 1)
    value = tensor->float_data(0);
  else if (tensor->raw_data().size() == sizeof value)
    std::memcpy(&value, tensor->raw_data().data(), sizeof value);
  else
    return std::nullopt;
  return value;
}

// Matcher: an operator of ai.onnx that computes elements from elements.
bool proto::GraphValues::isArithmetic(StringRef name) const {
  const NodeProto *node = producer(name);
  return node && llvm::is_contained({"Add", "Sub", "Mul", "Div", "Sum", "Sqrt", "Pow", "Neg", "Cast", "Reciprocal",
                                     "Max", "Min", "Clip", "Where", "Abs", "Sign", "Expand", "Tanh"},
                                    node->op_type());
}
