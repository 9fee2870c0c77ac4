// SPDX-License-Identifier: Apache-2.0
// Values of a graph, and the gradients that its optimizer's moments average.
#include "GraphValues.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

#include <cstring>
#include <map>

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

namespace {

/// An update is arithmetic on elements; longer ones than this are none.
constexpr size_t mostUpdateNodes = 64;

/// What a new value is computed from by arithmetic on elements alone.
llvm::StringSet<> sourcesOf(const proto::GraphValues &values, StringRef next) {
  llvm::StringSet<> seen;
  SmallVector<StringRef> work{values.origin(next)};
  for (size_t i = 0; i < work.size() && i < mostUpdateNodes; ++i) {
    const NodeProto *node = values.producer(work[i]);
    if (!node || !llvm::is_contained({"Add", "Sub", "Mul", "Div", "Sqrt", "Pow", "Neg", "Cast", "Reciprocal", "Max",
                                      "Min", "Clip", "Where", "Abs", "Sign", "Expand", "Reshape", "Unsqueeze"},
                                     node->op_type()))
      continue;
    for (const std::string &input : node->input())
      if (seen.insert(values.origin(input)).second)
        work.push_back(values.origin(input));
  }
  return seen;
}

/// True where only the state's new value is computed from the state, unlike of parameters.
bool isPrivate(const proto::GraphValues &values, StringRef state, StringRef next) {
  llvm::StringSet<> sources = sourcesOf(values, next);
  return llvm::all_of(values.readersOf(state), [&](const NodeProto *reader) {
    StringRef result = reader->output_size() ? StringRef(reader->output(0)) : StringRef();
    return sources.contains(result) || result == values.origin(next);
  });
}

} // namespace

llvm::StringSet<> proto::sharedFactors(const GraphValues &values, const llvm::StringMap<std::string> &next) {
  llvm::StringMap<size_t> counts;
  size_t updates = 0;
  for (const auto &entry : next) {
    llvm::StringSet<> sources = sourcesOf(values, entry.getKey()), factors;
    for (StringRef source : sources.keys())
      if (const NodeProto *mul = values.producer(source, "Mul"); mul && mul->input_size() == 2)
        for (const std::string &input : mul->input())
          if (values.producer(input) && !values.number(input))
            factors.insert(values.origin(input));
    updates += !factors.empty();
    for (StringRef factor : factors.keys())
      ++counts[factor];
  }
  llvm::StringSet<> shared;
  for (const auto &entry : counts) {
    // Of one parameter, all states are made from the gradient; what clips is multiplied with several.
    llvm::StringSet<> others;
    for (const NodeProto *reader : values.readersOf(entry.getKey()))
      for (const std::string &input : reader->input())
        if (StringRef other = values.origin(input);
            reader->op_type() == "Mul" && other != entry.getKey() && values.producer(other) && !values.number(other))
          others.insert(other);
    if (others.size() > 1 && entry.getValue() == updates)
      shared.insert(entry.getKey());
  }
  return shared;
}

namespace {

/// Matcher: slot_next = slot * number + g * number, g alone, or slot + number * (g - slot); g may be a square.
class Moment {
public:
  Moment(const proto::GraphValues &values, StringRef slot, const llvm::StringSet<> &shared)
      : values(values), slot(slot), shared(shared) {}

  /// The gradient that `next` averages; empty where it is no average.
  StringRef gradient(StringRef next) const {
    const NodeProto *add = values.producer(next, "Add");
    for (int i = 0; add && add->input_size() == 2 && i < 2; ++i) {
      StringRef decayed = add->input(i), other = add->input(1 - i);
      SmallVector<StringRef> factors = factorsOf(decayed);
      if (factors.size() != 1 || factors.front() != slot)
        continue;
      bool isDecayed = values.origin(decayed) != slot;
      StringRef found = isDecayed ? ofFactors(factorsOf(other)) : ofDifference(factorsOf(other));
      if (!found.empty())
        return withoutDecay(found);
    }
    return {};
  }

private:
  /// Of a product, all factors but numbers and what all gradients are clipped by.
  SmallVector<StringRef> factorsOf(StringRef name) const {
    SmallVector<StringRef> work{values.origin(name)}, factors;
    for (size_t i = 0; i < work.size() && i < 8; ++i) {
      const NodeProto *mul = values.producer(work[i], "Mul");
      if (!mul || mul->input_size() != 2) {
        if (!values.number(work[i]) && !shared.contains(work[i]))
          factors.push_back(work[i]);
        continue;
      }
      for (const std::string &input : mul->input())
        work.push_back(values.origin(input));
    }
    return factors;
  }

  StringRef ofFactors(ArrayRef<StringRef> factors) const {
    if (factors.size() == 2 && factors[0] == factors[1])
      return factors[0];
    const NodeProto *pow = factors.size() == 1 ? values.producer(factors[0], "Pow") : nullptr;
    if (pow && pow->input_size() == 2 && values.number(pow->input(1)) == 2.0)
      return values.origin(pow->input(0));
    return factors.size() == 1 ? factors[0] : StringRef();
  }

  StringRef ofDifference(ArrayRef<StringRef> factors) const {
    const NodeProto *sub = factors.size() == 1 ? values.producer(factors[0], "Sub") : nullptr;
    if (!sub || sub->input_size() != 2 || values.origin(sub->input(1)) != slot)
      return {};
    return ofFactors(factorsOf(sub->input(0)));
  }

  /// g of g + number * state.
  StringRef withoutDecay(StringRef gradient) const {
    const NodeProto *add = values.producer(gradient, "Add");
    for (int i = 0; add && add->input_size() == 2 && i < 2; ++i) {
      SmallVector<StringRef> factors = factorsOf(add->input(i));
      if (factors.size() == 1 && values.tensor(factors.front()))
        return values.origin(add->input(1 - i));
    }
    return gradient;
  }

  const proto::GraphValues &values;
  StringRef slot;
  const llvm::StringSet<> &shared;
};

} // namespace

std::vector<std::pair<std::string, std::string>> proto::gradientsOfMoments(const GraphValues &values,
                                                                           const llvm::StringMap<std::string> &next) {
  llvm::StringSet<> shared = sharedFactors(values, next);
  std::map<std::string, std::string> found; // in an order that does not hang on hashes
  for (const auto &update : next) {
    llvm::StringSet<> sources = sourcesOf(values, update.getKey());
    for (const auto &other : next) {
      if (other.getValue() == update.getValue() || !sources.contains(values.origin(other.getKey())) ||
          !isPrivate(values, other.getValue(), other.getKey()))
        continue;
      StringRef gradient = Moment(values, other.getValue(), shared).gradient(other.getKey());
      if (!gradient.empty() && values.defines(gradient))
        found.try_emplace(update.getValue(), gradient.str());
    }
  }
  std::vector<std::pair<std::string, std::string>> result;
  result.reserve(found.size());
  for (const auto &[parameter, gradient] : found)
    result.emplace_back(gradient, parameter);
  return result;
}
