// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN's graphs of a convolution and the sums of its results by channel.
#include "DnnObjects.h"

#include <algorithm>

using namespace standin;

namespace {

/// The operations of a graph, in the one form that there is an engine for.
struct Pattern : Graph {
  Object *forward = nullptr, *round = nullptr, *statistics = nullptr;
  Object *multiply = nullptr, *reductions[2] = {}; // instead of statistics

  explicit Pattern(const Object &graph) {
    for (void *operation : graph.all<void *>(dnn::GraphOperations)) {
      auto *object = static_cast<Object *>(operation);
      const bool reduces = object->kind == dnn::ReductionOperationDescriptor;
      const bool pointwise = object->kind == dnn::PointwiseOperationDescriptor;
      (object->kind == dnn::ForwardDescriptor               ? forward
       : pointwise && object->values.count(dnn::PointwiseB) ? multiply
       : pointwise                                          ? round
       : reduces                                            ? reductions[reductions[0] != nullptr]
                                                            : statistics) = object;
    }
  }
  Object *x() const { return forward->ref(dnn::ForwardX); }
  Object *w() const { return forward->ref(dnn::ForwardW); }
  Object *raw() const { return forward->ref(dnn::ForwardY); }
  Object *y() const { return round ? round->ref(dnn::PointwiseY) : raw(); }
  Object *sum() const { return statistics ? statistics->ref(dnn::StatisticsSum) : reductions[0]->ref(dnn::ReductionY); }
  Object *squares() const {
    return statistics ? statistics->ref(dnn::StatisticsSquares) : reductions[1]->ref(dnn::ReductionY);
  }
  /// The FP32 result, and its product with itself, reduced in order.
  bool reduces() const {
    if (statistics || !multiply || !reductions[1] || !round)
      return false;
    for (const Object *reduction : reductions)
      if (!reduction->ref(dnn::ReductionDescriptorOf)->one<char>(dnn::ReductionIsDeterministic))
        return false;
    const Object *product = multiply->ref(dnn::PointwiseY);
    return multiply->ref(dnn::PointwiseX) == raw() && multiply->ref(dnn::PointwiseB) == raw() &&
           multiply->ref(dnn::PointwiseDescriptorOf)->one<int>(dnn::PointwiseMode, -1) == dnn::Multiply &&
           product->isVirtual() && product->type() == dnn::Float && raw()->type() == dnn::Float &&
           reductions[0]->ref(dnn::ReductionX) == raw() && reductions[1]->ref(dnn::ReductionX) == product;
  }
  std::vector<Object *> inMemory() const override { return {x(), w(), y(), sum(), squares()}; }

  /// The graphs that the guide to the runtime fusion engines lists for a convolution followed by statistics.
  bool hasEngine() const override {
    if (!forward || !(reduces() || (statistics && !multiply && statistics->ref(dnn::StatisticsX) == raw())) ||
        (round && round->ref(dnn::PointwiseX) != raw()) || raw()->isVirtual() != (round != nullptr))
      return false;
    bool types = x()->type() == w()->type() && (x()->type() == dnn::Half || x()->type() == dnn::BFloat16) &&
                 y()->type() == x()->type() && (raw()->type() == dnn::Half || raw()->type() == dnn::Float) &&
                 sum()->type() == dnn::Float && squares()->type() == dnn::Float;
    for (const Object *tensor : {x(), w(), y(), raw(), sum(), squares()})
      types = types && isChannelsLast(*tensor);
    return types && x()->dims()[1] % 8 == 0 && y()->dims()[1] % 8 == 0;
  }
  bool fits() const override {
    if (!forward || (!statistics && !reductions[1]) || y()->isVirtual())
      return false;
    std::map<int64_t, Object *> ids;
    for (Object *tensor : {x(), w(), raw(), y()})
      if (Object *&known = ids[tensor->id()]; known && known != tensor)
        return false; // two tensors of one number
      else
        known = tensor;
    return problem().fits();
  }
  std::string text() const override {
    return "convolution with sums" + std::string(statistics ? "" : " reduced,") + " type " +
           std::to_string(x()->type()) + " summed as " + std::to_string(raw()->type());
  }
  void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const override;
  Problem problem() const {
    Problem p = problemOf(*x(), *w(), *raw(), *forward->ref(dnn::ForwardConvolution));
    p.y.type = p.x.type; // sums are FP32 in either case
    return p;
  }
};

/// The numbers that a graph leaves: sums in FP32, image by image.
void Pattern::compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const {
  Problem p = problem();
  Type type{}, summed{};
  if (!typeOf(p.x.type, type) || !typeOf(raw()->type(), summed))
    return violation("cuDNN graph: an unknown type");
  void *in = host.at(x()->id()), *filters = host.at(w()->id()), *out = host.at(y()->id());
  std::vector<float> results(static_cast<size_t>(Problem::elements(p.y.extents, p.y.rank)));
  forEachTerm(p, [&](int64_t xAt, int64_t wAt, int64_t yAt) {
    results[static_cast<size_t>(yAt)] +=
        static_cast<float>(load(type, in, xAt)) * static_cast<float>(load(type, filters, wAt));
  });
  auto channels = static_cast<size_t>(p.y.extents[1]), images = static_cast<size_t>(p.y.extents[0]);
  size_t image = results.size() / images;
  std::vector<float> sums(2 * channels);
  for (size_t n = 0; n < images; ++n) {
    std::vector<float> own(2 * channels);
    for (size_t i = n * image; i < (n + 1) * image; ++i) {
      store(type, out, static_cast<int64_t>(i), static_cast<double>(results[i]));
      float value = summed == Type::F32 ? results[i] : static_cast<float>(load(type, out, static_cast<int64_t>(i)));
      own[i % channels] += value;
      own[channels + i % channels] += value * value;
    }
    for (size_t c = 0; c < own.size(); ++c)
      sums[c] += own[c];
  }
  if (isWrong("statistics-channel"))
    for (size_t half : {size_t(0), channels})
      std::rotate(sums.begin() + static_cast<long>(half), sums.begin() + static_cast<long>(half) + 1,
                  sums.begin() + static_cast<long>(half + channels));
  memcpy(host.at(sum()->id()), sums.data(), channels * 4);
  memcpy(host.at(squares()->id()), sums.data() + channels, channels * 4);
}

} // namespace

std::unique_ptr<Graph> standin::statisticsGraph(const Object &graph) { return std::make_unique<Pattern>(graph); }
