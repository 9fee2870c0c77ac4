// SPDX-License-Identifier: Apache-2.0
// Mutation by protobuf reflection.
#include "Mutate.h"

#include "onnx/defs/schema.h"
#include "onnx/onnx_pb.h"

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

private:
  /// Every field of every message, and every string.
  void collect(Message &message) {
    const Reflection &r = *message.GetReflection();
    std::vector<const FieldDescriptor *> set;
    r.ListFields(message, &set);
    for (const FieldDescriptor *field : set) {
      // What is there is worth more than what could be.
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
    mutator.change(model);
    model.SerializeToString(&result);
  } else {
    mutator.flipBits(result);
  }
  return result;
}
