// SPDX-License-Identifier: Apache-2.0
// Symbolic and unknown extents of a graph's inputs, and the numbers that --bind gives them.
#include "Proto.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

/// The name of a dimension in --bind: its symbol, or the input and the axis where it has none.
static std::string symbolOf(const ValueInfoProto &input, int axis) {
  const auto &dim = input.type().tensor_type().shape().dim(axis);
  return dim.dim_param().empty() ? input.name() + "." + std::to_string(axis) : dim.dim_param();
}

void proto::forgetNegativeExtents(GraphProto &graph) {
  for (auto *values : {graph.mutable_input(), graph.mutable_output(), graph.mutable_value_info()})
    for (ValueInfoProto &value : *values)
      if (value.type().has_tensor_type() && value.type().tensor_type().has_shape())
        for (auto &dim : *value.mutable_type()->mutable_tensor_type()->mutable_shape()->mutable_dim())
          if (dim.has_dim_value() && dim.dim_value() < 0)
            dim.clear_dim_value();
  for (NodeProto &node : *graph.mutable_node())
    for (AttributeProto &attribute : *node.mutable_attribute())
      if (attribute.has_g())
        forgetNegativeExtents(*attribute.mutable_g());
}

/// Refuses dimensions that nothing binds, with the flags that would.
static LogicalResult checkBound(const GraphProto &graph, const llvm::StringMap<int64_t> &bindings,
                                MLIRContext *context) {
  llvm::StringSet<> seen;
  SmallVector<std::string> unbound;
  const ValueInfoProto *first = nullptr;
  for (const ValueInfoProto &input : graph.input())
    for (int i = 0; i < input.type().tensor_type().shape().dim_size(); ++i)
      if (std::string symbol = symbolOf(input, i);
          !input.type().tensor_type().shape().dim(i).has_dim_value() && !bindings.contains(symbol)) {
        first = first ? first : &input;
        if (seen.insert(symbol).second)
          unbound.push_back(symbol);
      }
  if (!first)
    return success();
  InFlightDiagnostic error = emitError(proto::namedLoc(context, first->name()));
  error << "expected static extents for graph input '" << first->name() << "', got symbol '" << unbound.front()
        << "'; bind it:";
  for (const std::string &symbol : unbound)
    error << " --bind " << symbol << "=<extent>";
  return error << " [mpt-unbound-dimension]";
}

/// Gives inputs that initializers are the defaults of these ones' extents, and adds to `bindings` the symbols that are
/// known thereby.
static void takeExtents(GraphProto &graph, ArrayRef<TensorProto> initializers, llvm::StringMap<int64_t> &bindings) {
  llvm::StringMap<const TensorProto *> tensors;
  for (const TensorProto &tensor : initializers)
    tensors[tensor.name()] = &tensor;
  llvm::StringMap<int64_t> known;
  for (ValueInfoProto &input : *graph.mutable_input()) {
    const TensorProto *tensor = tensors.lookup(input.name());
    if (!tensor || !input.type().has_tensor_type())
      continue;
    if (!input.type().tensor_type().has_shape())
      proto::declareType(input, *tensor);
    auto &shape = *input.mutable_type()->mutable_tensor_type()->mutable_shape();
    for (int i = 0; i < shape.dim_size() && shape.dim_size() == tensor->dims_size(); ++i) {
      if (shape.dim(i).dim_value() > 0)
        continue;
      auto [symbol, isNew] = known.try_emplace(symbolOf(input, i), tensor->dims(i));
      if (!isNew && symbol->second != tensor->dims(i))
        symbol->second = -1; // two extents of one name say nothing of a third
      shape.mutable_dim(i)->set_dim_value(tensor->dims(i));
    }
  }
  for (const auto &symbol : known)
    if (symbol.second >= 0)
      bindings.try_emplace(symbol.getKey(), symbol.second);
}

LogicalResult proto::bindDimensions(GraphProto &graph, ArrayRef<TensorProto> initializers, const ImportOptions &options,
                                    bool isPart, MLIRContext *context) {
  llvm::StringMap<int64_t> bindings = options.bindings;
  takeExtents(graph, initializers, bindings);
  if (failed(checkBound(graph, bindings, context)))
    return failure();
  llvm::StringSet<> used;
  for (ValueInfoProto &input : *graph.mutable_input()) {
    if (!input.type().has_tensor_type())
      continue;
    auto &tensor = *input.mutable_type()->mutable_tensor_type();
    Location loc = proto::namedLoc(context, input.name());
    if (!tensor.has_shape())
      return emitError(loc) << "expected a shape for graph input '" << input.name() << "', got none";
    int64_t count = 1;
    for (int i = 0; i < tensor.shape().dim_size(); ++i) {
      auto &dim = *tensor.mutable_shape()->mutable_dim(i);
      std::string symbol = symbolOf(input, i);
      auto bound = bindings.find(symbol);
      // 0 may be an unknown extent too, or the extent of an empty tensor.
      if (dim.has_dim_value() && dim.dim_value() == 0 && bound == bindings.end())
        emitWarning(loc) << "graph input '" << input.name() << "' is taken to be empty, as its extent " << i
                         << " is 0; where that means an unknown extent: --bind " << symbol << "=<extent>";
      if (dim.dim_value() > 0 || bound == bindings.end()) {
        if (__builtin_mul_overflow(count, std::max<int64_t>(dim.dim_value(), 1), &count) || count > mostElements)
          return emitError(loc) << "expected fewer than 2^40 elements, got extent " << dim.dim_value()
                                << " beyond them";
        continue;
      }
      used.insert(symbol);
      dim.set_dim_value(bound->second);
      if (__builtin_mul_overflow(count, std::max<int64_t>(bound->second, 1), &count) || count > mostElements)
        return emitError(loc) << "expected fewer than 2^40 elements, got --bind " << symbol << "=" << bound->second
                              << " beyond them";
    }
  }
  for (const auto &binding : options.bindings)
    if (!isPart && !used.contains(binding.getKey()))
      emitWarning(UnknownLoc::get(context))
          << "binding of '" << binding.getKey() << "' has no effect: no graph input has such a symbol";
  return success();
}
