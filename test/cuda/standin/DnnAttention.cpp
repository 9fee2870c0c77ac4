// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN's graphs of attention and its gradients: operation by operation, in FP32, rounded where a tensor
// has 16 bits. $MPT_STANDIN_NO_ATTENTION=1: no engine.
#include "DnnObjects.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>
#include <unordered_map>

using namespace standin;

namespace {

using Index = std::array<int64_t, 4>;

template <typename F> void forEach(const std::vector<int64_t> &d, F fn) {
  for (int64_t a = 0; a < d[0]; ++a)
    for (int64_t b = 0; b < d[1]; ++b)
      for (int64_t c = 0; c < d[2]; ++c)
        for (int64_t e = 0; e < d[3]; ++e)
          fn(Index{a, b, c, e});
}

/// Where `at` lies in a dense tensor of `dims`, which repeats where it is shorter: all of it along dimensions of one
/// element, else by groups of neighbours (heads that share others).
size_t denseAt(const std::vector<int64_t> &dims, const Index &at, const std::vector<int64_t> &of) {
  int64_t offset = 0;
  for (size_t i = 0; i < 4; ++i)
    offset = offset * dims[i] + at[i] / (of[i] / dims[i]);
  return static_cast<size_t>(offset);
}

int64_t offsetAt(const Object &tensor, const Index &at) {
  std::vector<int64_t> strides = tensor.all<int64_t>(dnn::TensorStrides);
  return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
}

struct AttentionGraph : Graph {
  std::vector<Object *> operations;

  explicit AttentionGraph(const Object &graph) {
    for (void *operation : graph.all<void *>(dnn::GraphOperations))
      operations.push_back(static_cast<Object *>(operation));
  }
  std::vector<Object *> inMemory() const override { return tensorsInMemory(operations); }
  const char *refusal() const override { return "MPT_STANDIN_NO_ATTENTION"; }
  std::string text() const override {
    return std::string(isGradient() ? "gradient of attention" : "attention") + " type " +
           std::to_string(firstProduct().ref(dnn::MatmulA)->type());
  }
  /// Gradients keep the gradients of all probabilities, in whole tiles.
  int64_t workspaceBytes() const override {
    std::vector<int64_t> d = firstProduct().ref(dnn::MatmulC)->dims();
    auto tiles = [](int64_t extent) { return (extent + 127) / 128 * 128; };
    return isGradient() ? d[0] * d[1] * tiles(d[2]) * tiles(d[3]) * 2 + 128 : 0;
  }

  /// A letter for each operation.
  std::string form() const {
    static const std::map<int, char> letters{{dnn::Add, '+'},      {dnn::Multiply, '*'},       {dnn::Subtract, '-'},
                                             {dnn::Divide, '/'},   {dnn::Exponential, 'e'},    {dnn::Logarithm, 'l'},
                                             {dnn::Identity, '='}, {dnn::GreaterOrEqual, 'g'}, {dnn::Index, 'i'},
                                             {dnn::Select, 's'}};
    std::string text;
    for (const Object *operation : operations) {
      char letter = '?';
      if (operation->kind == dnn::MatmulOperationDescriptor)
        letter = 'P';
      else if (operation->kind == dnn::ReshapeDescriptor)
        letter = 'R';
      else if (operation->kind == dnn::ReductionOperationDescriptor)
        letter =
            operation->ref(dnn::ReductionDescriptorOf)->one<int>(dnn::ReductionOperator) == dnn::ReduceAdd ? 'A' : 'M';
      else if (operation->kind == dnn::PointwiseOperationDescriptor)
        if (auto it = letters.find(operation->ref(dnn::PointwiseDescriptorOf)->one<int>(dnn::PointwiseMode, -1));
            it != letters.end())
          letter = it->second;
      text += letter;
    }
    return text;
  }
  bool isGradient() const { return operations.front()->kind == dnn::PointwiseOperationDescriptor; }
  const Object &firstProduct() const {
    for (const Object *operation : operations)
      if (operation->kind == dnn::MatmulOperationDescriptor)
        return *operation;
    return *operations.front();
  }

  bool fits() const override {
    if (!isOrdered(operations))
      return false;
    for (const Object *operation : operations) {
      for (bool written : {false, true})
        for (const Object *tensor : tensorsOf(*operation, written))
          if (tensor->dims().size() != 4 || (tensor->isNumber() && (written || elementsOf(*tensor) != 1)))
            return false;
      std::vector<int64_t> result = tensorsOf(*operation, true).front()->dims();
      if (operation->kind == dnn::MatmulOperationDescriptor) {
        std::vector<int64_t> a = operation->ref(dnn::MatmulA)->dims(), b = operation->ref(dnn::MatmulB)->dims();
        if (a[3] != b[2] || result[0] != a[0] || result[1] != a[1] || result[2] != a[2] || result[3] != b[3] ||
            b[0] != a[0] || a[1] % b[1])
          return false;
      } else if (operation->kind == dnn::ReshapeDescriptor) {
        if (elementsOf(*operation->ref(dnn::ReshapeX)) != elementsOf(*operation->ref(dnn::ReshapeY)))
          return false;
      } else if (operation->kind == dnn::PointwiseOperationDescriptor) {
        for (const Object *tensor : tensorsOf(*operation, false))
          for (size_t i = 0; i < 4; ++i)
            if (tensor->dims()[i] != 1 && tensor->dims()[i] != result[i])
              return false;
      }
    }
    return true;
  }

  /// The graphs that the documents of fused attention list, as far as the runtime asks for them.
  bool hasEngine() const override {
    static const std::regex forward("P\\*\\+?(iigs)?M-eAl\\+/P"),
        gradient("\\*A\\*P\\*\\+?-(iigs)?eRPA?P-\\*\\*RPA?RP");
    if (!std::regex_match(form(), isGradient() ? gradient : forward))
      return false;
    const int type = firstProduct().ref(dnn::MatmulA)->type();
    if (type != dnn::Half && type != dnn::BFloat16)
      return false;
    for (const Object *operation : operations) {
      if (operation->kind == dnn::MatmulOperationDescriptor) {
        const Object *a = operation->ref(dnn::MatmulA), *b = operation->ref(dnn::MatmulB),
                     *c = operation->ref(dnn::MatmulC);
        // Results stay FP32 inside, except results of heads that are summed up.
        const int wanted = c->isVirtual() && !isSummed(c) ? static_cast<int>(dnn::Float) : type;
        if ((a->type() != type && !a->isVirtual()) || b->type() != type || c->type() != wanted)
          return false;
        if (!c->isVirtual() && (c->dims()[3] > 128 || c->dims()[3] % 8))
          return false;
      }
      for (bool written : {false, true})
        for (const Object *tensor : tensorsOf(*operation, written)) {
          std::vector<int64_t> strides = tensor->all<int64_t>(dnn::TensorStrides);
          if (std::any_of(strides.begin(), strides.end(), [](int64_t s) { return s < 1; }) ||
              (strides[3] != 1 && strides[2] != 1) || (written && !tensor->isVirtual() && strides[3] != 1))
            return false;
        }
    }
    return true;
  }
  bool isSummed(const Object *tensor) const {
    for (const Object *operation : operations)
      if (operation->kind == dnn::ReductionOperationDescriptor && operation->ref(dnn::ReductionX) == tensor)
        return true;
    return false;
  }

  void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &numbers) const override;
};

/// A tensor's elements in dense order of its dimensions.
class Elements {
public:
  Elements(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &numbers)
      : host(host), numbers(numbers) {}

  const std::vector<float> &read(const Object *tensor) {
    auto known = values.try_emplace(tensor);
    std::vector<float> &elements = known.first->second;
    if (!known.second)
      return elements;
    if (tensor->isNumber())
      return elements = {numbers.at(tensor->id())};
    Type type{};
    if (!typeOf(tensor->type(), type))
      violation("cuDNN graph: a tensor in memory of an unknown type");
    forEach(tensor->dims(), [&](const Index &at) {
      elements.push_back(static_cast<float>(load(type, host.at(tensor->id()), offsetAt(*tensor, at))));
    });
    return elements;
  }
  void write(const Object *tensor, std::vector<float> result) {
    Type type{};
    if (typeOf(tensor->type(), type)) { // else indices and comparisons
      size_t i = 0;
      uint64_t space = 0;
      forEach(tensor->dims(), [&](const Index &at) {
        void *base = tensor->isVirtual() ? &space : host.at(tensor->id());
        int64_t offset = tensor->isVirtual() ? 0 : offsetAt(*tensor, at);
        store(type, base, offset, static_cast<double>(result[i]));
        result[i++] = static_cast<float>(load(type, base, offset));
      });
    }
    values[tensor] = std::move(result);
  }

private:
  const std::map<int64_t, void *> &host;
  const std::map<int64_t, float> &numbers;
  std::map<const Object *, std::vector<float>> values;
};

float apply(int mode, float x, float y, float t) {
  switch (mode) {
  case dnn::Add:
    return x + y;
  case dnn::Multiply:
    return x * y;
  case dnn::Subtract:
    return x - y;
  case dnn::Divide:
    return x / y;
  case dnn::Exponential:
    return std::exp(x);
  case dnn::Logarithm:
    return std::log(x);
  case dnn::GreaterOrEqual:
    return x >= y;
  case dnn::Select:
    return t != 0 ? x : y;
  default:
    return x;
  }
}

void AttentionGraph::compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &numbers) const {
  Elements elements(host, numbers);
  size_t written = 0;
  for (const Object *operation : operations) {
    const Object *result = tensorsOf(*operation, true).front();
    std::vector<int64_t> dims = result->dims();
    std::vector<float> out(elementsOf(*result));
    size_t i = 0;
    if (operation->kind == dnn::PointwiseOperationDescriptor) {
      const Object &settings = *operation->ref(dnn::PointwiseDescriptorOf);
      int mode = settings.one<int>(dnn::PointwiseMode);
      auto axis = static_cast<size_t>(settings.one<int64_t>(dnn::PointwiseAxis));
      const Object *refs[] = {operation->ref(dnn::PointwiseX), operation->ref(dnn::PointwiseB),
                              operation->ref(dnn::PointwiseT)};
      forEach(dims, [&](const Index &at) {
        float values[3] = {};
        for (int k = 0; k < 3; ++k)
          if (refs[k])
            values[k] = elements.read(refs[k])[denseAt(refs[k]->dims(), at, dims)];
        out[i++] = mode == dnn::Index ? static_cast<float>(at[axis]) : apply(mode, values[0], values[1], values[2]);
      });
    } else if (operation->kind == dnn::ReductionOperationDescriptor) {
      const Object *x = operation->ref(dnn::ReductionX);
      bool largest = operation->ref(dnn::ReductionDescriptorOf)->one<int>(dnn::ReductionOperator) != dnn::ReduceAdd;
      std::vector<double> sums(out.size(), largest ? -HUGE_VAL : 0.);
      const std::vector<float> &values = elements.read(x);
      forEach(x->dims(), [&](const Index &at) {
        double &sum = sums[denseAt(dims, at, x->dims())], value = static_cast<double>(values[i++]);
        sum = largest ? std::max(sum, value) : sum + value;
      });
      std::transform(sums.begin(), sums.end(), out.begin(), [](double sum) { return static_cast<float>(sum); });
    } else if (operation->kind == dnn::ReshapeDescriptor) {
      // Another order of the same elements: they are told by where they lie.
      const Object *x = operation->ref(dnn::ReshapeX);
      const std::vector<float> &values = elements.read(x);
      std::unordered_map<int64_t, float> at;
      forEach(x->dims(), [&](const Index &index) { at[offsetAt(*x, index)] = values[i++]; });
      i = 0;
      forEach(dims, [&](const Index &index) { out[i++] = at.at(offsetAt(*result, index)); });
    } else {
      const Object *a = operation->ref(dnn::MatmulA), *b = operation->ref(dnn::MatmulB);
      std::vector<int64_t> ofA = a->dims(), ofB = b->dims();
      const std::vector<float> &left = elements.read(a), &right = elements.read(b);
      const int64_t share = ofA[1] / ofB[1];
      forEach(dims, [&](const Index &at) {
        const float *x = left.data() + ((at[0] * ofA[1] + at[1]) * ofA[2] + at[2]) * ofA[3];
        const float *y = right.data() + (at[0] * ofB[1] + at[1] / share) * ofB[2] * ofB[3] + at[3];
        double sum = 0;
        for (int64_t k = 0; k < ofA[3]; ++k)
          sum += static_cast<double>(x[k]) * static_cast<double>(y[k * ofB[3]]);
        out[i++] = static_cast<float>(sum);
      });
    }
    // Results of gradients in memory, in the order of their products: the gradient of values, of keys, of queries.
    if (isGradient() && !result->isVirtual()) {
      constexpr const char *errors[] = {"sign-of-dv", "sign-of-dk", "sign-of-dq"};
      if (written < 3 && isWrong(errors[written++]))
        std::transform(out.begin(), out.end(), out.begin(), [](float value) { return -value; });
    }
    elements.write(result, std::move(out));
  }
}

} // namespace

std::unique_ptr<Graph> standin::attentionGraph(const Object &graph) { return std::make_unique<AttentionGraph>(graph); }

std::unique_ptr<Graph> standin::graphOf(const Object &graph) {
  if (std::unique_ptr<Graph> plain = plainGraph(graph))
    return plain;
  for (void *operation : graph.all<void *>(dnn::GraphOperations))
    switch (static_cast<Object *>(operation)->kind) {
    case dnn::ForwardDescriptor:
      return statisticsGraph(graph);
    case dnn::BackwardDataDescriptor:
      return std::make_unique<GradientGraph>(graph);
    case dnn::MatmulOperationDescriptor:
      return attentionGraph(graph);
    default:
      break;
    }
  return nullptr;
}
