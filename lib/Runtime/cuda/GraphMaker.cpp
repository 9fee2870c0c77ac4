// SPDX-License-Identifier: Apache-2.0
// Descriptors that cuDNN's graphs are made of.
#include "cuda/GraphMaker.h"

using namespace mpt::rt;

namespace {

int rankOf(const mpt_conv_desc &d) { return d.in[0] == 1 && d.out[0] == 1 && d.kernel[0] == 1 ? 2 : 3; }

} // namespace

dnn::Descriptor GraphMaker::tensor(int64_t id, int type, const std::vector<int64_t> &shape,
                                   const std::vector<int64_t> &strides, Place place) {
  dnn::Descriptor t = make(dnn::TensorDescriptor);
  set(t, dnn::TensorDataType, dnn::DataTypeType, type);
  setVector(t, dnn::TensorDimensions, shape);
  setVector(t, dnn::TensorStrides, strides);
  set(t, dnn::TensorId, dnn::Int64Type, id);
  set(t, dnn::TensorAlignment, dnn::Int64Type, graphAlignment);
  if (place == Place::Inside)
    set(t, dnn::TensorIsVirtual, dnn::BooleanType, true);
  if (place == Place::Number)
    set(t, dnn::TensorIsNumber, dnn::BooleanType, true);
  return finish(t);
}

dnn::Descriptor GraphMaker::tensor(int64_t id, int type, const mpt_conv_desc &d, int64_t images, int64_t channels,
                                   const int64_t (&extents)[3], bool isVirtual) {
  const int rank = rankOf(d);
  std::vector<int64_t> shape{images, channels}, strides(static_cast<size_t>(rank) + 2);
  for (int i = 3 - rank; i < 3; ++i)
    shape.push_back(extents[i]);
  int64_t stride = channels;
  for (size_t i = strides.size(); i-- > 2; stride *= shape[i])
    strides[i] = stride;
  strides[1] = 1;
  strides[0] = stride;
  return tensor(id, type, shape, strides, isVirtual ? Place::Inside : Place::Memory);
}

dnn::Descriptor GraphMaker::byChannel(int64_t id, const mpt_conv_desc &d, int64_t channels) {
  const int64_t ones[3] = {1, 1, 1};
  return tensor(id, dnn::Float, d, 1, channels, ones);
}

dnn::Descriptor GraphMaker::convolution(const mpt_conv_desc &d) {
  const int single = dnn::Float, mode = dnn::CrossCorrelation;
  const int64_t rank = rankOf(d);
  auto spatial = [&](const int64_t (&values)[3]) { return std::vector<int64_t>(values + 3 - rank, values + 3); };
  dnn::Descriptor conv = make(dnn::ConvolutionDescriptor);
  set(conv, dnn::ConvolutionSpatialDims, dnn::Int64Type, rank);
  set(conv, dnn::ConvolutionCompute, dnn::DataTypeType, single);
  set(conv, dnn::ConvolutionMode, dnn::ConvolutionModeType, mode);
  setVector(conv, dnn::ConvolutionPrePaddings, spatial(d.pad_low));
  setVector(conv, dnn::ConvolutionPostPaddings, spatial(d.pad_low)); // more on that side is not read (isTakenByGraphs)
  setVector(conv, dnn::ConvolutionDilations, spatial(d.dilation));
  setVector(conv, dnn::ConvolutionStrides, spatial(d.stride));
  return finish(conv);
}

dnn::Descriptor GraphMaker::pointwise(dnn::PointwiseFunction function, dnn::Descriptor x, dnn::Descriptor b,
                                      dnn::Descriptor y, dnn::Descriptor t, int64_t axis) {
  const int mode = function, precision = function == dnn::GreaterOrEqual ? dnn::Boolean : dnn::Float;
  dnn::Descriptor settings = make(dnn::PointwiseDescriptor);
  set(settings, dnn::PointwiseMode, dnn::PointwiseModeType, mode);
  set(settings, dnn::PointwisePrecision, dnn::DataTypeType, precision);
  if (axis >= 0)
    set(settings, dnn::PointwiseAxis, dnn::Int64Type, axis);
  finish(settings);
  dnn::Descriptor operation = make(dnn::PointwiseOperationDescriptor);
  link(operation, {{dnn::PointwiseDescriptorOf, settings}, {dnn::PointwiseX, x}});
  if (function == dnn::ReluGradient)
    link(operation, {{dnn::PointwiseGradientY, b}, {dnn::PointwiseGradientX, y}});
  else if (b)
    link(operation, {{dnn::PointwiseB, b}, {dnn::PointwiseY, y}});
  else
    link(operation, {{dnn::PointwiseY, y}});
  if (t)
    link(operation, {{dnn::PointwiseT, t}});
  return finish(operation);
}

dnn::Descriptor GraphMaker::reduction(dnn::Reduction function, dnn::Descriptor x, dnn::Descriptor y, bool ordered) {
  const int operation = function, single = dnn::Float;
  dnn::Descriptor settings = make(dnn::ReductionDescriptor);
  set(settings, dnn::ReductionOperator, dnn::ReductionType, operation);
  set(settings, dnn::ReductionPrecision, dnn::DataTypeType, single);
  if (ordered)
    set(settings, dnn::ReductionIsDeterministic, dnn::BooleanType, ordered);
  finish(settings);
  dnn::Descriptor reduce = make(dnn::ReductionOperationDescriptor);
  link(reduce, {{dnn::ReductionX, x}, {dnn::ReductionY, y}, {dnn::ReductionDescriptorOf, settings}});
  return finish(reduce);
}

dnn::Descriptor GraphMaker::gemm(dnn::Descriptor a, dnn::Descriptor b, dnn::Descriptor c) {
  const int single = dnn::Float;
  dnn::Descriptor settings = make(dnn::MatmulDescriptor);
  set(settings, dnn::MatmulPrecision, dnn::DataTypeType, single);
  finish(settings);
  dnn::Descriptor matmul = make(dnn::MatmulOperationDescriptor);
  link(matmul, {{dnn::MatmulA, a}, {dnn::MatmulB, b}, {dnn::MatmulC, c}, {dnn::MatmulDescriptorOf, settings}});
  return finish(matmul);
}

dnn::Descriptor GraphMaker::reshape(dnn::Descriptor x, dnn::Descriptor y) {
  dnn::Descriptor view = make(dnn::ReshapeDescriptor);
  link(view, {{dnn::ReshapeX, x}, {dnn::ReshapeY, y}});
  return finish(view);
}

dnn::Descriptor GraphMaker::graph(const std::vector<dnn::Descriptor> &operations) {
  dnn::Descriptor graph = make(dnn::GraphDescriptor);
  if (handle)
    set(graph, dnn::GraphHandle, dnn::HandleType, handle);
  set(graph, dnn::GraphOperations, dnn::DescriptorsType, operations.data(), operations.size());
  return finish(graph);
}
