// SPDX-License-Identifier: Apache-2.0
// The fake cuDNN's graphs of one convolution: of one type, or of 16-bit operands with an FP32 result. The latter
// have engines as 9.19 has: only where an operation behind the convolution writes the result.
#include "DnnObjects.h"

#include <algorithm>

using namespace standin;

namespace {

struct Plain : Graph {
  Object *operation, *tensors[3], *convolution; ///< x, w, y
  Object *raw, *round;                          ///< the convolution's result; null: nothing follows it
  int result;                                   ///< which of them

  Plain(Object *of, Object *round) : operation(of), round(round) {
    const int names[3][4] = {
        {dnn::ForwardX, dnn::ForwardW, dnn::ForwardY, dnn::ForwardConvolution},
        {dnn::BackwardDataX, dnn::BackwardDataW, dnn::BackwardDataY, dnn::BackwardDataConvolution},
        {dnn::BackwardWeightsX, dnn::BackwardWeightsW, dnn::BackwardWeightsY, dnn::BackwardWeightsConvolution}};
    const int kind = of->kind == dnn::ForwardDescriptor ? 0 : of->kind == dnn::BackwardDataDescriptor ? 1 : 2;
    for (int i = 0; i < 3; ++i)
      tensors[i] = of->ref(names[kind][i]);
    convolution = of->ref(names[kind][3]);
    result = kind == 0 ? 2 : kind - 1;
    raw = tensors[result];
    if (round)
      tensors[result] = round->ref(dnn::PointwiseY);
  }
  const Object &operand(int i) const { return *tensors[(result + i) % 3]; }
  std::vector<Object *> inMemory() const override { return {tensors[0], tensors[1], tensors[2]}; }
  bool hasEngine() const override {
    const int type = operand(1).type();
    if (type != operand(2).type() ||
        !std::all_of(tensors, tensors + 3, [](const Object *tensor) { return isChannelsLast(*tensor); }))
      return false;
    if (!isWide())
      return !round && (type == dnn::Half || type == dnn::BFloat16 || type == dnn::Float);
    return (round || version() >= 92000) && (type == dnn::Half || type == dnn::BFloat16) && raw->type() == dnn::Float &&
           tensors[0]->dims()[1] % 8 == 0 && tensors[2]->dims()[1] % 8 == 0;
  }
  bool fits() const override {
    return tensors[0]->id() != tensors[1]->id() && tensors[1]->id() != tensors[2]->id() &&
           tensors[0]->id() != tensors[2]->id() &&
           std::none_of(tensors, tensors + 3, [](const Object *tensor) { return tensor->isVirtual(); }) &&
           (!round ||
            (round->ref(dnn::PointwiseX) == raw && raw->isVirtual() && raw->dims() == tensors[result]->dims())) &&
           problem().fits();
  }
  bool isWide() const { return tensors[result]->type() != operand(1).type(); }
  bool single() const override { return operand(1).type() == dnn::Float; }
  std::string text() const override {
    return (isWide() ? "wide convolution " : "convolution ") + std::to_string(result) + " type " +
           std::to_string(operand(1).type()) + (round ? " rounded apart" : "");
  }
  const char *refusal() const override { return isWide() ? "MPT_STANDIN_NO_WIDE" : "MPT_STANDIN_NO_CONVOLUTION"; }
  Problem problem() const {
    Problem p = problemOf(*tensors[0], *tensors[1], *tensors[2], *convolution);
    p.x.type = p.w.type = p.y.type = operand(1).type(); // sums are FP32 in any case
    p.conv.groups = p.x.extents[1] / p.w.extents[1];
    return p;
  }
  void compute(const std::map<int64_t, void *> &host, const std::map<int64_t, float> &) const override {
    Type type{};
    if (!typeOf(operand(1).type(), type))
      return violation("cuDNN graph: an unknown type");
    const void *a = host.at(operand(1).id()), *b = host.at(operand(2).id());
    std::vector<float> to(elementsOf(*tensors[result]));
    forEachTerm(problem(), [&](int64_t xAt, int64_t wAt, int64_t yAt) {
      const int64_t at[3] = {xAt, wAt, yAt};
      to[static_cast<size_t>(at[result])] += static_cast<float>(load(type, a, at[(result + 1) % 3])) *
                                             static_cast<float>(load(type, b, at[(result + 2) % 3]));
    });
    typeOf(tensors[result]->type(), type);
    for (size_t i = 0; i < to.size(); ++i)
      store(type, host.at(tensors[result]->id()), static_cast<int64_t>(i), static_cast<double>(to[i]));
  }
};

} // namespace

std::unique_ptr<Graph> standin::plainGraph(const Object &graph) {
  std::vector<void *> operations = graph.all<void *>(dnn::GraphOperations);
  auto at = [&](size_t i) { return i < operations.size() ? static_cast<Object *>(operations[i]) : nullptr; };
  Object *first = at(0), *second = at(1);
  const bool isRounded = second && second->kind == dnn::PointwiseOperationDescriptor &&
                         second->ref(dnn::PointwiseDescriptorOf)->one<int>(dnn::PointwiseMode, -1) == dnn::Identity;
  if (operations.size() > 2 || (second && !isRounded) ||
      (first->kind != dnn::ForwardDescriptor && first->kind != dnn::BackwardDataDescriptor &&
       first->kind != dnn::BackwardWeightsDescriptor))
    return nullptr;
  return std::make_unique<Plain>(first, second);
}
