// SPDX-License-Identifier: Apache-2.0
// Mutation by protobuf reflection, and of nodes and tensors.
#include "Mutate.h"

#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

#include <cstring>
#include <limits>
#include <random>
#include <vector>

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

namespace {

class Mutator {
public:
  explicit Mutator(uint64_t seed) : random(seed) {}

  void flipBits(std::string &bytes) {
    if (!bytes.empty() && below(4) == 0)
      bytes.resize(below(bytes.size()));
    for (uint64_t i = 0, n = 1 + below(4); i < n && !bytes.empty(); ++i)
      bytes[below(bytes.size())] ^= static_cast<char>(1 << below(8));
  }

  void change(onnx::ModelProto &model) {
    for (uint64_t i = 0, n = 1 + below(4); i < n; ++i) {
      places.clear();
      names.clear();
      collect(model);
      auto [message, field] = places[below(places.size())];
      changeField(*message, *field);
    }
  }

  uint64_t below(uint64_t n) { return random() % n; }

  void changeGraph(onnx::ModelProto &model) {
    for (uint64_t i = 0, n = 1 + below(4); i < n; ++i)
      changePart(model);
  }

private:
  template <typename List> auto &anyOf(List &list) {
    return *list.Mutable(static_cast<int>(below(static_cast<uint64_t>(list.size()))));
  }

  /// The model's graph, or one of its training information.
  onnx::GraphProto &anyGraph(onnx::ModelProto &model) {
    if (model.training_info_size() && below(2))
      return *anyOf(*model.mutable_training_info()).mutable_algorithm();
    return *model.mutable_graph();
  }

  /// A value of the graph: an input, an initializer or a result.
  std::string anyValue(const onnx::GraphProto &graph) {
    names.clear();
    for (const auto &input : graph.input())
      names.push_back(input.name());
    for (const auto &tensor : graph.initializer())
      names.push_back(tensor.name());
    for (const auto &node : graph.node())
      names.insert(names.end(), node.output().begin(), node.output().end());
    return names.empty() ? "" : names[below(names.size())];
  }

  void changePart(onnx::ModelProto &model) {
    onnx::GraphProto &graph = anyGraph(model);
    switch (below(10)) {
    case 0:
      return dropNode(graph);
    case 1:
      return doubleNode(graph);
    case 2:
    case 3:
      return rewire(graph);
    case 4:
      return changeAttribute(graph);
    case 5:
      return changeTensor(graph);
    case 6:
      return changeType(graph);
    case 7:
      return changeRole(model, graph);
    case 8:
      if (model.opset_import_size())
        anyOf(*model.mutable_opset_import()).set_version(static_cast<int64_t>(below(30)));
      return;
    default:
      return changeFileBeside(model);
    }
  }

  /// Readers of the node read its first input instead.
  void dropNode(onnx::GraphProto &graph) {
    if (!graph.node_size())
      return;
    int at = static_cast<int>(below(static_cast<uint64_t>(graph.node_size())));
    onnx::NodeProto gone = graph.node(at);
    graph.mutable_node()->DeleteSubrange(at, 1);
    std::string instead = gone.input_size() ? gone.input(0) : anyValue(graph);
    for (onnx::NodeProto &node : *graph.mutable_node())
      for (std::string &input : *node.mutable_input())
        if (gone.output_size() && input == gone.output(0))
          input = instead;
  }

  /// A copy with results of its own, one of which somebody reads.
  void doubleNode(onnx::GraphProto &graph) {
    if (!graph.node_size())
      return;
    int at = static_cast<int>(below(static_cast<uint64_t>(graph.node_size())));
    onnx::NodeProto copy = graph.node(at);
    copy.clear_name();
    for (std::string &output : *copy.mutable_output())
      output += ".copy";
    *graph.add_node() = copy;
    for (int i = graph.node_size() - 1; i > at + 1; --i)
      graph.mutable_node()->SwapElements(i, i - 1);
    onnx::NodeProto &reader = anyOf(*graph.mutable_node());
    if (copy.output_size() && reader.input_size())
      anyOf(*reader.mutable_input()) = copy.output(0);
  }

  void rewire(onnx::GraphProto &graph) {
    if (!graph.node_size())
      return;
    onnx::NodeProto &node = anyOf(*graph.mutable_node());
    switch (below(8)) {
    case 0:
      return node.add_input(anyValue(graph));
    case 1:
      if (node.input_size())
        node.mutable_input()->RemoveLast();
      return;
    case 2:
      if (node.input_size())
        anyOf(*node.mutable_input()).clear(); // an optional operand that is not there
      return;
    case 3:
      if (node.input_size() > 1)
        node.mutable_input()->SwapElements(0, node.input_size() - 1);
      return;
    default:
      if (node.input_size())
        anyOf(*node.mutable_input()) = anyValue(graph);
    }
  }

  void changeAttribute(onnx::GraphProto &graph) {
    if (!graph.node_size())
      return;
    onnx::NodeProto &node = anyOf(*graph.mutable_node());
    if (!node.attribute_size())
      return;
    onnx::AttributeProto &attribute = anyOf(*node.mutable_attribute());
    if (attribute.ints_size() && below(2)) {
      int64_t &value = anyOf(*attribute.mutable_ints());
      value = number(value);
    } else if (attribute.ints_size()) {
      below(2) ? attribute.add_ints(1) : attribute.mutable_ints()->RemoveLast();
    } else if (attribute.type() == onnx::AttributeProto::FLOAT) {
      attribute.set_f(real());
    } else if (attribute.type() == onnx::AttributeProto::INT) {
      attribute.set_i(number(attribute.i()));
    } else {
      node.mutable_attribute()->RemoveLast();
    }
  }

  /// Another element type, another extent, or another value's name; the elements need not fit.
  void changeTensor(onnx::GraphProto &graph) {
    if (!graph.initializer_size())
      return;
    onnx::TensorProto &tensor = anyOf(*graph.mutable_initializer());
    switch (below(5)) {
    case 0:
      return tensor.set_data_type(static_cast<int>(below(24)));
    case 1:
      return tensor.add_dims(1);
    case 2:
      if (tensor.dims_size() > 1)
        tensor.mutable_dims()->SwapElements(0, tensor.dims_size() - 1);
      return;
    case 3:
      if (tensor.dims_size())
        tensor.set_dims(0, number(tensor.dims(0)));
      return;
    default:
      tensor.set_name(anyValue(graph));
    }
  }

  void changeType(onnx::GraphProto &graph) {
    auto &list = below(2) && graph.output_size() ? *graph.mutable_output() : *graph.mutable_input();
    if (list.empty())
      return;
    auto &type = *anyOf(list).mutable_type()->mutable_tensor_type();
    if (below(4) == 0)
      return type.set_elem_type(static_cast<int>(below(24)));
    auto &dims = *type.mutable_shape()->mutable_dim();
    if (dims.empty() || below(4) == 0) {
      dims.Add()->set_dim_value(1);
    } else if (below(3) == 0) {
      anyOf(dims).set_dim_param("N");
    } else {
      auto &dim = anyOf(dims);
      dim.set_dim_value(number(dim.dim_value()));
    }
  }

  /// Changes which value is a gradient, a new value, a buffer or a binding.
  void changeRole(onnx::ModelProto &model, onnx::GraphProto &graph) {
    if (model.training_info_size() && below(2)) {
      auto &info = anyOf(*model.mutable_training_info());
      auto &bindings = below(4) ? *info.mutable_update_binding() : *info.mutable_initialization_binding();
      auto &binding = bindings.empty() ? *bindings.Add() : anyOf(bindings);
      below(2) ? binding.set_key(anyValue(*model.mutable_graph())) : binding.set_value(anyValue(info.algorithm()));
      if (below(8) == 0)
        *model.add_training_info() = info;
      return;
    }
    static const char *const suffixes[] = {"_grad", "_next", "_grad.accumulation.buffer", "_grad.accumulation.out",
                                           ".moment1"};
    std::string name = anyValue(graph) + suffixes[below(std::size(suffixes))];
    if (below(2) && graph.output_size()) {
      onnx::ValueInfoProto &output = below(2) ? anyOf(*graph.mutable_output()) : *graph.add_output();
      output.set_name(below(2) ? name : anyValue(graph));
    } else if (graph.node_size()) {
      onnx::NodeProto &node = anyOf(*graph.mutable_node());
      if (node.output_size())
        anyOf(*node.mutable_output()) = name;
    }
  }

  /// A model there by the same rules, a checkpoint by its numbers, which are aligned.
  void changeFileBeside(onnx::ModelProto &model) {
    for (onnx::TensorProto &tensor : *model.mutable_graph()->mutable_initializer()) {
      if (tensor.name().rfind("fuzz.", 0) != 0 || below(2))
        continue;
      std::string &bytes = *tensor.mutable_raw_data();
      onnx::ModelProto inner;
      if (tensor.name() != "fuzz.checkpoint" && inner.ParseFromString(bytes)) {
        below(2) ? change(inner) : changePart(inner);
        inner.SerializeToString(&bytes);
        return;
      }
      for (uint64_t i = 0, n = 1 + below(3); i < n && bytes.size() >= 8; ++i) {
        size_t at = below(bytes.size() / 4) * 4;
        uint32_t old = 0;
        memcpy(&old, bytes.data() + at, 4);
        auto value = static_cast<uint32_t>(below(2) ? number(old) : below(bytes.size()));
        memcpy(bytes.data() + at, &value, 4);
      }
      if (below(8) == 0)
        flipBits(bytes);
      return;
    }
  }

  /// Every field of every message, and every string.
  void collect(Message &message) {
    const Reflection &r = *message.GetReflection();
    std::vector<const FieldDescriptor *> set;
    r.ListFields(message, &set);
    for (const FieldDescriptor *field : set) {
      // Fields that are set are worth more than fields that could be.
      places.insert(places.end(), 4, {&message, field});
      int count = field->is_repeated() ? r.FieldSize(message, field) : 1;
      for (int i = 0; i < count; ++i) {
        if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
          collect(field->is_repeated() ? *r.MutableRepeatedMessage(&message, field, i)
                                       : *r.MutableMessage(&message, field));
        else if (field->type() == FieldDescriptor::TYPE_STRING)
          names.push_back(field->is_repeated() ? r.GetRepeatedString(message, field, i) : r.GetString(message, field));
      }
    }
    const auto &type = *message.GetDescriptor();
    if (type.field_count())
      places.emplace_back(&message, type.field(static_cast<int>(below(static_cast<uint64_t>(type.field_count())))));
  }

  void changeField(Message &message, const FieldDescriptor &field) {
    const Reflection &r = *message.GetReflection();
    if (!field.is_repeated()) {
      if (below(8) == 0)
        return r.ClearField(&message, &field);
      return changeOne(message, field, -1);
    }
    int size = r.FieldSize(message, &field);
    auto any = [&] { return static_cast<int>(below(static_cast<uint64_t>(size))); };
    switch (size ? below(8) : 7) {
    case 0:
      return r.RemoveLast(&message, &field);
    case 1:
      return r.ClearField(&message, &field);
    case 2:
      return r.SwapElements(&message, &field, any(), any());
    case 3: {
      r.SwapElements(&message, &field, any(), size - 1);
      return r.RemoveLast(&message, &field);
    }
    case 4:
    case 7:
      add(message, field, size ? any() : -1);
      return changeOne(message, field, size);
    default:
      return changeOne(message, field, any());
    }
  }

  /// Appends an element: a copy of element `from`, or an empty one.
  void add(Message &message, const FieldDescriptor &field, int from) {
    const Reflection &r = *message.GetReflection();
    switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message *added = r.AddMessage(&message, &field);
      if (from >= 0)
        added->CopyFrom(r.GetRepeatedMessage(message, &field, from));
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return r.AddString(&message, &field, from < 0 ? "" : r.GetRepeatedString(message, &field, from));
    case FieldDescriptor::CPPTYPE_INT64:
      return r.AddInt64(&message, &field, 0);
    case FieldDescriptor::CPPTYPE_INT32:
      return r.AddInt32(&message, &field, 0);
    case FieldDescriptor::CPPTYPE_UINT64:
      return r.AddUInt64(&message, &field, 0);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return r.AddFloat(&message, &field, 0);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return r.AddDouble(&message, &field, 0);
    default:
      return;
    }
  }

  /// Changes the value of a field, or element `i` of a repeated one.
  void changeOne(Message &message, const FieldDescriptor &field, int i) {
    const Reflection &r = *message.GetReflection();
    bool one = i >= 0;
    switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      Message &inner = one ? *r.MutableRepeatedMessage(&message, &field, i) : *r.MutableMessage(&message, &field);
      const auto &type = *inner.GetDescriptor();
      if (type.field_count())
        changeField(inner, *type.field(static_cast<int>(below(static_cast<uint64_t>(type.field_count())))));
      return;
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string old = one ? r.GetRepeatedString(message, &field, i) : r.GetString(message, &field);
      std::string value = text(field, std::move(old));
      return one ? r.SetRepeatedString(&message, &field, i, value) : r.SetString(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_INT64: {
      int64_t value = number(one ? r.GetRepeatedInt64(message, &field, i) : r.GetInt64(message, &field));
      return one ? r.SetRepeatedInt64(&message, &field, i, value) : r.SetInt64(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_INT32: {
      auto value = static_cast<int32_t>(number(one ? r.GetRepeatedInt32(message, &field, i) : below(24)));
      return one ? r.SetRepeatedInt32(&message, &field, i, value) : r.SetInt32(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      float value = real();
      return one ? r.SetRepeatedFloat(&message, &field, i, value) : r.SetFloat(&message, &field, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM:
      if (!one)
        r.SetEnumValue(&message, &field, static_cast<int>(below(16)));
      return;
    default:
      return;
    }
  }

  int64_t number(int64_t old) {
    const int64_t extremes[] = {0,
                                1,
                                -1,
                                2,
                                3,
                                7,
                                64,
                                1 << 16,
                                (int64_t(1) << 31) - 1,
                                int64_t(1) << 31,
                                int64_t(1) << 40,
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min()};
    switch (below(4)) {
    case 0:
      return static_cast<int64_t>(static_cast<uint64_t>(old) + 1);
    case 1:
      return static_cast<int64_t>(static_cast<uint64_t>(old) - 1);
    default:
      return extremes[below(std::size(extremes))];
    }
  }

  float real() {
    const float extremes[] = {0,
                              1,
                              -1,
                              0.5f,
                              1e30f,
                              -1e-30f,
                              std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()};
    return extremes[below(std::size(extremes))];
  }

  std::string text(const FieldDescriptor &field, std::string old) {
    static const std::vector<std::string> operators = [] {
      std::vector<std::string> all;
      for (const auto &schema : onnx::OpSchemaRegistry::get_all_schemas())
        if (schema.domain().empty())
          all.push_back(schema.Name());
      return all;
    }();
    static const char *const attributes[] = {
        "axis", "axes",      "pads", "strides",    "kernel_shape",  "dilations", "group",
        "perm", "keepdims",  "to",   "epsilon",    "training_mode", "value",     "mode",
        "k",    "allowzero", "body", "reduction",  "auto_pad",      "alpha",     "split",
        "beta", "transA",    "size", "num_groups", "output_shape",  "blocksize", "scales"};
    if (field.name() == "op_type" && below(4))
      return operators[below(operators.size())];
    if (field.containing_type()->name() == "AttributeProto" && field.name() == "name" && below(4))
      return attributes[below(std::size(attributes))];
    if (field.type() == FieldDescriptor::TYPE_BYTES || below(8) == 0) {
      flipBits(old);
      return old;
    }
    return names.empty() || below(16) == 0 ? "" : names[below(names.size())];
  }

  std::mt19937_64 random;
  std::vector<std::pair<Message *, const FieldDescriptor *>> places;
  std::vector<std::string> names;
};

} // namespace

std::string mpt::fuzz::mutateModel(const std::string &bytes, uint64_t seed) {
  Mutator mutator(seed);
  onnx::ModelProto model;
  std::string result = bytes;
  if (mutator.below(8) != 0 && model.ParseFromString(bytes)) {
    mutator.below(2) ? mutator.changeGraph(model) : mutator.change(model);
    model.SerializeToString(&result);
  } else {
    mutator.flipBits(result);
  }
  return result;
}

mpt::fuzz::Parts mpt::fuzz::split(const std::string &bytes) {
  Parts parts{bytes, "", "", ""};
  onnx::ModelProto model;
  if (!model.ParseFromString(bytes))
    return parts;
  auto &tensors = *model.mutable_graph()->mutable_initializer();
  for (int i = tensors.size(); i-- > 0;)
    for (auto [name, part] :
         {std::pair("fuzz.checkpoint", &parts.checkpoint), std::pair("fuzz.optimizer", &parts.optimizer),
          std::pair("fuzz.evaluation", &parts.evaluation)})
      if (tensors[i].name() == name) {
        *part = tensors[i].raw_data();
        tensors.DeleteSubrange(i, 1);
        break;
      }
  if (!parts.checkpoint.empty() || !parts.optimizer.empty() || !parts.evaluation.empty())
    model.SerializeToString(&parts.model);
  return parts;
}
