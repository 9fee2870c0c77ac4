// SPDX-License-Identifier: Apache-2.0
// Roles of a joint graph's outputs by their names: P_grad and P_next, or another customary form of the two.
#include "GraphValues.h"
#include "Proto.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
struct Style {
  StringLiteral before, after;

  /// The tensor's name in `name`; empty where it has another form.
  StringRef of(StringRef name) const {
    return name.consume_front(before) && name.consume_back(after) ? name : StringRef();
  }
};

/// The first of each list is the form that takes a match alone; for the others see customary().
constexpr Style gradientStyles[] = {{"", "_grad"},  {"", ".grad"},     {"grad_", ""},     {"grad.", ""}, {"grad/", ""},
                                    {"", "/grad"},  {"", "_gradient"}, {"gradient_", ""}, {"", "@GRAD"}, {"grads_", ""},
                                    {"grads.", ""}, {"d_", ""},        {"d", ""},         {"g_", ""},    {"", "_g"}};
constexpr Style nextStyles[] = {{"", "_next"}, {"", ".next"}, {"next_", ""}, {"next.", ""},    {"new_", ""},
                                {"new.", ""},  {"", "_new"},  {"", ".new"},  {"updated_", ""}, {"", "_updated"},
                                {"", "_out"},  {"", ".out"},  {"out_", ""},  {"", "_prime"},   {"", "_after"}};
} // namespace

static bool isFloatMatrix(int32_t type, int64_t rank) {
  return rank >= 2 && llvm::is_contained(
                          {TensorProto::FLOAT, TensorProto::FLOAT16, TensorProto::BFLOAT16, TensorProto::DOUBLE}, type);
}

namespace {
/// The tensors that may be states, by name, with their types: initializers, or inputs.
class States {
public:
  States(const GraphProto &graph, bool areInputs) : areInputs(areInputs) {
    for (const TensorProto &tensor : graph.initializer())
      proto::declareType(types[tensor.name()], tensor);
    llvm::StringMap<ValueInfoProto> initializers;
    if (areInputs) {
      std::swap(types, initializers);
      for (const ValueInfoProto &input : graph.input())
        if (!initializers.contains(input.name()))
          types.try_emplace(input.name(), input);
    }
    matrices = llvm::count_if(types, [](const auto &entry) { return isMatrix(entry.second); });
    for (const auto &entry : initializers)
      constants += elements(entry.second);
  }

  /// Functional steps have their parameters as inputs, and constants as initializers; elsewhere the weights of a graph
  /// outnumber the states that it carries from run to run.
  bool outnumberConstants(const llvm::StringMap<std::string> &found) const {
    int64_t count = 0;
    for (const auto &entry : found)
      count += elements(types.find(entry.getValue())->second);
    return count >= constants;
  }

  bool isMatrix(StringRef name) const {
    auto found = types.find(name);
    return found != types.end() && isMatrix(found->second);
  }

  /// Whether an output is of the type of state `name`, as far as it says so.
  bool fits(const ValueInfoProto &output, StringRef name) const {
    auto found = types.find(name);
    if (found == types.end() || !output.type().has_tensor_type())
      return false;
    const auto &type = output.type().tensor_type(), &state = found->second.type().tensor_type();
    if (type.elem_type() != state.elem_type())
      return false;
    if (!type.has_shape() || !state.has_shape())
      return true;
    return llvm::equal(type.shape().dim(), state.shape().dim(), [](const auto &a, const auto &b) {
      return !a.has_dim_value() || !b.has_dim_value() || a.dim_value() == b.dim_value();
    });
  }

  bool areInputs;
  int64_t matrices = 0;

private:
  static bool isMatrix(const ValueInfoProto &value) {
    const auto &type = value.type().tensor_type();
    return isFloatMatrix(type.elem_type(), type.shape().dim_size());
  }
  /// Of a matrix of floats; 0 for others.
  static int64_t elements(const ValueInfoProto &value) {
    int64_t count = isMatrix(value);
    for (const auto &dim : value.type().tensor_type().shape().dim())
      if (__builtin_mul_overflow(count, dim.dim_value(), &count))
        return 0;
    return count;
  }

  int64_t constants = 0; ///< elements of the matrices among initializers, where states are inputs
  llvm::StringMap<ValueInfoProto> types;
};
} // namespace

static bool hasScalar(const GraphProto &graph) {
  return llvm::any_of(graph.output(), [](const ValueInfoProto &output) {
    return output.type().tensor_type().has_shape() && proto::isScalarFloat(output);
  });
}

/// Output -> state, by the style that names most matrices, and at least one of `share` of them.
static llvm::StringMap<std::string> customary(const GraphProto &graph, const States &states, ArrayRef<Style> styles,
                                              int64_t share) {
  llvm::StringMap<std::string> best;
  int64_t most = 0;
  for (const Style &style : styles.drop_front()) {
    llvm::StringMap<std::string> found;
    int64_t matrices = 0;
    for (const ValueInfoProto &output : graph.output())
      if (StringRef of = style.of(output.name()); !of.empty() && states.fits(output, of)) {
        found[output.name()] = of.str();
        matrices += states.isMatrix(of);
      }
    if (matrices > most && matrices * share >= states.matrices) {
      most = matrices;
      best = std::move(found);
    }
  }
  return best;
}

bool proto::inputsCanTrain(const GraphProto &graph, const llvm::StringMap<std::string> &found) {
  return hasScalar(graph) && States(graph, /*areInputs=*/true).outnumberConstants(found);
}

void proto::takeCustomaryNames(const GraphProto &graph, llvm::StringMap<std::string> &gradients,
                               llvm::StringMap<std::string> &next) {
  if ((!gradients.empty() && !next.empty()) || !hasScalar(graph))
    return;
  llvm::StringSet<> initializers;
  for (const TensorProto &tensor : graph.initializer())
    initializers.insert(tensor.name());
  for (bool areInputs : {false, true}) {
    States states(graph, areInputs);
    // Other results are called so too (a hidden state's `h_out`): new values are these where most matrices have one.
    llvm::StringMap<std::string> found[2];
    if (next.empty())
      found[1] = customary(graph, states, nextStyles, 2);
    if (gradients.empty())
      found[0] = customary(graph, states, gradientStyles, states.matrices);
    if (areInputs && !states.outnumberConstants(found[found[1].empty() ? 0 : 1]))
      return;
    // Of inputs, data have gradients too, but no new values.
    auto renewed = [&](StringRef name) {
      return llvm::any_of(found[1], [&](const auto &entry) { return entry.getValue() == name; });
    };
    for (auto &entry : llvm::make_early_inc_range(found[0]))
      if (areInputs && !found[1].empty() && !renewed(entry.getValue()))
        found[0].erase(entry.getKey());
    if (!found[0].empty())
      gradients = std::move(found[0]);
    if (!found[1].empty())
      next = std::move(found[1]);
    auto isInitializer = [&](const auto &entry) { return initializers.contains(entry.getValue()); };
    if (llvm::any_of(gradients, isInitializer) || llvm::any_of(next, isInitializer))
      return;
  }
}

SmallVector<StringRef> proto::trainedBy(StringRef output) {
  SmallVector<StringRef> names;
  for (ArrayRef<Style> styles : {ArrayRef<Style>(gradientStyles), ArrayRef<Style>(nextStyles)})
    for (const Style &style : styles)
      if (StringRef of = style.of(output); !of.empty())
        names.push_back(of);
  return names;
}
