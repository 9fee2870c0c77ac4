// SPDX-License-Identifier: Apache-2.0
// Convolutions whose results cuDNN sums up on the way: a graph of convolution and sums, one engine for both.
#include "cuda/ConvGraph.h"

using namespace mpt::rt;

namespace {

enum : int64_t { X = 1, W, Y, Sum, Other, Raw, Input, Mean, Inverse, Scale, Shift, Spare, Virtual = Spare + 3 };

/// `wide`: the convolution's FP32 result is rounded for y and summed, by reductions that keep an order, else the
/// rounded y is summed.
dnn::Descriptor statisticsGraph(GraphMaker &b, const mpt_conv_desc &d, bool wide) {
  const int type = dnnType(d.x_type), single = dnn::Float, both = dnn::SumAndSquares;
  dnn::Descriptor x = b.tensor(X, type, d, d.n, d.ic, d.in), w = b.tensor(W, type, d, d.oc, d.ic, d.kernel);
  dnn::Descriptor y = b.tensor(Y, type, d, d.n, d.oc, d.out);
  dnn::Descriptor raw = wide ? b.tensor(Raw, single, d, d.n, d.oc, d.out, /*isVirtual=*/true) : y;

  std::vector<dnn::Descriptor> operations{convOperation(b, d, x, w, raw)};
  if (wide) {
    dnn::Descriptor squares = b.tensor(Virtual, single, d, d.n, d.oc, d.out, /*isVirtual=*/true);
    operations.push_back(b.pointwise(dnn::Identity, raw, nullptr, y));
    operations.push_back(b.pointwise(dnn::Multiply, raw, raw, squares));
    operations.push_back(b.reduction(dnn::ReduceAdd, raw, b.byChannel(Sum, d, d.oc), /*ordered=*/true));
    operations.push_back(b.reduction(dnn::ReduceAdd, squares, b.byChannel(Other, d, d.oc), /*ordered=*/true));
    return b.graph(operations);
  }
  dnn::Descriptor statistics = b.make(dnn::StatisticsDescriptor);
  b.set(statistics, dnn::StatisticsMode, dnn::StatisticsModeType, both);
  b.set(statistics, dnn::StatisticsPrecision, dnn::DataTypeType, single);
  b.link(statistics, {{dnn::StatisticsX, raw},
                      {dnn::StatisticsSum, b.byChannel(Sum, d, d.oc)},
                      {dnn::StatisticsSquares, b.byChannel(Other, d, d.oc)}});
  operations.push_back(b.finish(statistics));
  return b.graph(operations);
}

/// The gradient of a convolution's operand, masked by the ReLU of a norm whose result that was, and the norm's sums: by
/// the operation for them (`fused`), or by two reductions of FP32 values.
dnn::Descriptor gradientGraph(GraphMaker &b, const mpt_conv_desc &d, bool fused) {
  const int type = dnnType(d.x_type), single = dnn::Float;
  dnn::Descriptor y = b.tensor(Y, type, d, d.n, d.oc, d.out), w = b.tensor(W, type, d, d.oc, d.ic, d.kernel);
  int64_t last = Virtual;
  auto inside = [&] { return b.tensor(last++, single, d, d.n, d.ic, d.in, /*isVirtual=*/true); };
  std::vector<dnn::Descriptor> operations;
  auto pointwise = [&](dnn::PointwiseFunction function, dnn::Descriptor x, dnn::Descriptor other,
                       dnn::Descriptor result) {
    operations.push_back(b.pointwise(function, x, other, result));
    return result;
  };
  dnn::Descriptor raw = b.tensor(Raw, single, d, d.n, d.ic, d.in, /*isVirtual=*/true);
  operations.push_back(convOperation(b, d, raw, w, y));

  dnn::Descriptor input = b.tensor(Input, type, d, d.n, d.ic, d.in), mean = b.byChannel(Mean, d, d.ic);
  dnn::Descriptor inverse = b.byChannel(Inverse, d, d.ic), scale = b.byChannel(Scale, d, d.ic);
  dnn::Descriptor centred = pointwise(dnn::Subtract, input, mean, inside());
  dnn::Descriptor normal = pointwise(dnn::Multiply, centred, inverse, inside());
  dnn::Descriptor scaled = pointwise(dnn::Multiply, normal, scale, inside());
  dnn::Descriptor shifted = pointwise(dnn::Add, scaled, b.byChannel(Shift, d, d.ic), inside());
  dnn::Descriptor x = b.tensor(X, type, d, d.n, d.ic, d.in);
  dnn::Descriptor sum = b.byChannel(Sum, d, d.ic), other = b.byChannel(Other, d, d.ic);
  if (fused) {
    pointwise(dnn::ReluGradient, shifted, raw, x);
    dnn::Descriptor weights = b.make(dnn::NormWeightsDescriptor);
    b.set(weights, dnn::NormPrecision, dnn::DataTypeType, single);
    b.link(weights, {{dnn::NormX, input},
                     {dnn::NormMean, mean},
                     {dnn::NormInverse, inverse},
                     {dnn::NormScale, scale},
                     {dnn::NormGradient, x},
                     {dnn::NormScaleSum, other},
                     {dnn::NormShiftSum, sum},
                     {dnn::NormApplyGradient, b.byChannel(Spare, d, d.ic)},
                     {dnn::NormApplyX, b.byChannel(Spare + 1, d, d.ic)},
                     {dnn::NormApplyShift, b.byChannel(Spare + 2, d, d.ic)}});
    operations.push_back(b.finish(weights));
  } else {
    dnn::Descriptor masked = pointwise(dnn::ReluGradient, shifted, raw, inside());
    pointwise(dnn::Identity, masked, nullptr, x);
    dnn::Descriptor product = pointwise(dnn::Multiply, masked, normal, inside());
    operations.push_back(b.reduction(dnn::ReduceAdd, masked, sum, true));
    operations.push_back(b.reduction(dnn::ReduceAdd, product, other, true));
  }
  return b.graph(operations);
}

bool hasSums(const mpt_conv_desc &d) {
  return isTakenByGraphs(d) && d.groups == 1 && d.w_type == d.x_type && d.y_type == d.x_type &&
         (d.x_type == MPT_FLOAT16 || d.x_type == MPT_BFLOAT16);
}

constexpr const char *name = "convolution with sums";

} // namespace

GraphRequest mpt::rt::requestConvWithSums(const mpt_conv_desc &d, size_t version, bool) {
  GraphRequest request{"conv sums " + wordsOf(d), {}};
  if (d.kind != MPT_CONV_FORWARD || !hasSums(d))
    return request;
  // GENSTATS takes FP16; for BF16 the FP32 results are summed instead.
  for (bool wide : {false, true})
    if (wide ? version >= 91100 : d.x_type == MPT_FLOAT16)
      request.forms.push_back(
          {[=](GraphMaker &b) { return statisticsGraph(b, d, wide); }, {X, W, Y, Sum, Other}, 0, 0, {}, name});
  return request;
}

GraphRequest mpt::rt::requestConvWithNormSums(const mpt_conv_desc &d, size_t version, bool) {
  GraphRequest request{"conv norm-sums " + wordsOf(d), {}};
  if (d.kind != MPT_CONV_BACKWARD_DATA || !hasSums(d))
    return request;
  const std::vector<int64_t> ids{X, W, Y, Sum, Other, Input, Mean, Inverse, Scale, Shift};
  std::vector<int64_t> more(ids);
  more.insert(more.end(), {Spare, Spare + 1, Spare + 2});
  // The engine for the operation takes FP16 alone; the other graph is for engines that fuse at run time.
  if (d.x_type == MPT_FLOAT16)
    request.forms.push_back({[=](GraphMaker &b) { return gradientGraph(b, d, true); }, more, 3, d.ic * 4, {}, name});
  if (version >= 91100)
    request.forms.push_back({[=](GraphMaker &b) { return gradientGraph(b, d, false); }, ids, 0, 0, {}, name});
  return request;
}
