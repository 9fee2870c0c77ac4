// SPDX-License-Identifier: Apache-2.0
// Attributes of the fake cuDNN's descriptors.
#include "DnnObjects.h"

using namespace standin;

namespace {

using namespace dnn;

constexpr int anyNumber = 8;

/// By descriptor, then by attribute.
const std::map<int, std::map<int, standin::Attribute>> all{
    {dnn::TensorDescriptor,
     {{TensorAlignment, {Int64Type, 1, 1}},
      {TensorDataType, {DataTypeType, 1, 1}},
      {TensorDimensions, {Int64Type, 1, anyNumber}},
      {TensorStrides, {Int64Type, 1, anyNumber}},
      {TensorId, {Int64Type, 1, 1}},
      {TensorIsVirtual, {BooleanType, 1, 1, false}},
      {TensorIsNumber, {BooleanType, 1, 1, false}}}},
    {ConvolutionDescriptor,
     {{ConvolutionCompute, {DataTypeType, 1, 1}},
      {dnn::ConvolutionMode, {ConvolutionModeType, 1, 1}},
      {ConvolutionDilations, {Int64Type, 1, anyNumber}},
      {ConvolutionStrides, {Int64Type, 1, anyNumber}},
      {ConvolutionPrePaddings, {Int64Type, 1, anyNumber}},
      {ConvolutionPostPaddings, {Int64Type, 1, anyNumber}},
      {ConvolutionSpatialDims, {Int64Type, 1, 1}}}},
    {PointwiseDescriptor,
     {{dnn::PointwiseMode, {PointwiseModeType, 1, 1}},
      {PointwisePrecision, {DataTypeType, 1, 1}},
      {PointwiseAxis, {Int64Type, 1, 1, false}}}},
    {ForwardDescriptor,
     {{ForwardX, {DescriptorsType, 1, 1}},
      {ForwardW, {DescriptorsType, 1, 1}},
      {ForwardY, {DescriptorsType, 1, 1}},
      {ForwardConvolution, {DescriptorsType, 1, 1}},
      {ForwardAlpha, {FloatType, 1, 1}},
      {ForwardBeta, {FloatType, 1, 1}}}},
    {PointwiseOperationDescriptor,
     {{PointwiseDescriptorOf, {DescriptorsType, 1, 1}},
      {PointwiseX, {DescriptorsType, 1, 1}},
      {PointwiseB, {DescriptorsType, 1, 1, false}},
      {PointwiseY, {DescriptorsType, 1, 1, false}},
      {PointwiseT, {DescriptorsType, 1, 1, false}},
      {PointwiseGradientX, {DescriptorsType, 1, 1, false}},
      {PointwiseGradientY, {DescriptorsType, 1, 1, false}}}},
    {BackwardWeightsDescriptor,
     {{BackwardWeightsX, {DescriptorsType, 1, 1}},
      {BackwardWeightsW, {DescriptorsType, 1, 1}},
      {BackwardWeightsY, {DescriptorsType, 1, 1}},
      {BackwardWeightsConvolution, {DescriptorsType, 1, 1}},
      {BackwardWeightsAlpha, {FloatType, 1, 1}},
      {BackwardWeightsBeta, {FloatType, 1, 1}}}},
    {BackwardDataDescriptor,
     {{BackwardDataX, {DescriptorsType, 1, 1}},
      {BackwardDataW, {DescriptorsType, 1, 1}},
      {BackwardDataY, {DescriptorsType, 1, 1}},
      {BackwardDataConvolution, {DescriptorsType, 1, 1}},
      {BackwardDataAlpha, {FloatType, 1, 1}},
      {BackwardDataBeta, {FloatType, 1, 1}}}},
    {ReductionDescriptor,
     {{ReductionOperator, {ReductionType, 1, 1}},
      {ReductionPrecision, {DataTypeType, 1, 1}},
      {ReductionIsDeterministic, {BooleanType, 1, 1, false}}}},
    {ReductionOperationDescriptor,
     {{ReductionX, {DescriptorsType, 1, 1}},
      {ReductionY, {DescriptorsType, 1, 1}},
      {ReductionDescriptorOf, {DescriptorsType, 1, 1}}}},
    {MatmulDescriptor, {{MatmulPrecision, {DataTypeType, 1, 1}}}},
    {MatmulOperationDescriptor,
     {{MatmulA, {DescriptorsType, 1, 1}},
      {MatmulB, {DescriptorsType, 1, 1}},
      {MatmulC, {DescriptorsType, 1, 1}},
      {MatmulDescriptorOf, {DescriptorsType, 1, 1}}}},
    {ReshapeDescriptor, {{ReshapeX, {DescriptorsType, 1, 1}}, {ReshapeY, {DescriptorsType, 1, 1}}}},
    {NormWeightsDescriptor,
     {{NormPrecision, {DataTypeType, 1, 1}},
      {NormMean, {DescriptorsType, 1, 1}},
      {NormInverse, {DescriptorsType, 1, 1}},
      {NormScale, {DescriptorsType, 1, 1}},
      {NormX, {DescriptorsType, 1, 1}},
      {NormGradient, {DescriptorsType, 1, 1}},
      {NormScaleSum, {DescriptorsType, 1, 1}},
      {NormShiftSum, {DescriptorsType, 1, 1}},
      {NormApplyGradient, {DescriptorsType, 1, 1}},
      {NormApplyX, {DescriptorsType, 1, 1}},
      {NormApplyShift, {DescriptorsType, 1, 1}}}},
    {StatisticsDescriptor,
     {{dnn::StatisticsMode, {StatisticsModeType, 1, 1}},
      {StatisticsPrecision, {DataTypeType, 1, 1}},
      {StatisticsX, {DescriptorsType, 1, 1}},
      {StatisticsSum, {DescriptorsType, 1, 1}},
      {StatisticsSquares, {DescriptorsType, 1, 1}}}},
    {GraphDescriptor, {{GraphHandle, {HandleType, 1, 1, false}}, {GraphOperations, {DescriptorsType, 1, 64}}}},
    {HeuristicDescriptor, {{HeuristicGraph, {DescriptorsType, 1, 1}}, {dnn::HeuristicMode, {HeuristicModeType, 1, 1}}}},
    {EngineConfigDescriptor, {}},
    {EngineDescriptor, {}},
    {KnobDescriptor, {}},
    {PlanDescriptor, {{PlanHandle, {HandleType, 1, 1, false}}, {PlanConfig, {DescriptorsType, 1, 1}}}},
    {PackDescriptor,
     {{PackIds, {Int64Type, 1, 64}}, {PackPointers, {PointerType, 1, 64}}, {PackWorkspace, {PointerType, 1, 1}}}}};

} // namespace

const std::map<int, std::map<int, standin::Attribute>> &standin::attributes() { return all; }

size_t standin::bytesOf(int attributeType) {
  switch (attributeType) {
  case dnn::Int64Type:
  case dnn::HandleType:
  case dnn::PointerType:
  case dnn::DescriptorsType:
    return 8;
  case dnn::BooleanType:
    return 1;
  default:
    return 4;
  }
}
