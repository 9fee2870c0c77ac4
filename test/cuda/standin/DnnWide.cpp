// SPDX-License-Identifier: Apache-2.0
// The stand-in's cuDNN graphs of one convolution of 16-bit operands with an FP32 result.
#include "DnnObjects.h"

#include <algorithm>

using namespace standin;

namespace {

struct Wide : Graph {
  Object *operation, *tensors[3], *convolution; ///< x, w, y
  int result;                                   ///< which of them

  explicit Wide(Object *of) : operation(of) {
    const int names[3][4] = {
        {dnn::ForwardX, dnn::ForwardW, dnn::ForwardY, dnn::ForwardConvolution},
        {dnn::BackwardDataX, dnn::BackwardDataW, dnn::BackwardDataY, dnn::BackwardDataConvolution},
        {dnn::BackwardWeightsX, dnn::BackwardWeightsW, dnn::BackwardWeightsY, dnn::BackwardWeightsConvolution}};
    const int kind = of->kind == dnn::ForwardDescriptor ? 0 : of->kind == dnn::BackwardDataDescriptor ? 1 : 2;
    for (int i = 0; i < 3; ++i)
      tensors[i] = of->ref(names[kind][i]);
    convolution = of->ref(names[kind][3]);
    result = kind == 0 ? 2 : kind - 1;
  }
  const Object &operand(int i) const { return *tensors[(result + i) % 3]; }
  std::vector<Object *> inMemory() const override { return {tensors[0], tensors[1], tensors[2]}; }
  bool hasEngine() const override {
    const int type = operand(1).type();
    return type == operand(2).type() && (type == dnn::Half || type == dnn::BFloat16) &&
           tensors[result]->type() == dnn::Float && tensors[0]->dims()[1] % 8 == 0 && tensors[2]->dims()[1] % 8 == 0 &&
           std::all_of(tensors, tensors + 3, [](const Object *tensor) { return isChannelsLast(*tensor); });
  }
  bool fits() const override {
    return tensors[0]->id() != tensors[1]->id() && tensors[1]->id() != tensors[2]->id() &&
           tensors[0]->id() != tensors[2]->id() &&
           std::none_of(tensors, tensors + 3, [](const Object *tensor) { return tensor->isVirtual(); }) &&
           problem().fits();
  }
  std::string text() const override {
    return "wide convolution " + std::to_string(result) + " type " + std::to_string(operand(1).type());
  }
  const char *refusal() const override { return "MPT_STANDIN_NO_WIDE"; }
  Problem problem() const {
    Problem p = problemOf(*tensors[0], *tensors[1], *tensors[2], *convolution);
    p.x.type = p.w.type = p.y.type = operand(1).type(); // sums are FP32 in any case
    return p;
  }
  void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const override {
    Type type{};
    if (!typeOf(operand(1).type(), type))
      return violation("cuDNN graph: an unknown type");
    auto *to = static_cast<float *>(host.at(tensors[result]->id()));
    const void *a = host.at(operand(1).id()), *b = host.at(operand(2).id());
    std::fill_n(to, elementsOf(*tensors[result]), 0.0f);
    forEachTerm(problem(), [&](int64_t xAt, int64_t wAt, int64_t yAt) {
      const int64_t at[3] = {xAt, wAt, yAt};
      to[at[result]] += static_cast<float>(load(type, a, at[(result + 1) % 3])) *
                        static_cast<float>(load(type, b, at[(result + 2) % 3]));
    });
  }
};

} // namespace

std::unique_ptr<Graph> standin::wideGraph(const Object &graph) {
  std::vector<void *> operations = graph.all<void *>(dnn::GraphOperations);
  auto *only = operations.size() == 1 ? static_cast<Object *>(operations.front()) : nullptr;
  if (!only || (only->kind != dnn::ForwardDescriptor && only->kind != dnn::BackwardDataDescriptor &&
                only->kind != dnn::BackwardWeightsDescriptor))
    return nullptr;
  return std::make_unique<Wide>(only);
}
