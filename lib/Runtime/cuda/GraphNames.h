// Numbers of cuDNN's graph interface.
// Names and numbers are those of NVIDIA's cuDNN backend API reference.
#ifndef MPT_RUNTIME_CUDA_GRAPHNAMES_H
#define MPT_RUNTIME_CUDA_GRAPHNAMES_H

#include "cuda/Convolutions.h"

namespace mpt::rt::dnn {

using Descriptor = void *; // cudnnBackendDescriptor_t

enum DescriptorType {
  PointwiseDescriptor = 0,
  ConvolutionDescriptor = 1,
  EngineDescriptor = 2,
  EngineConfigDescriptor = 3,
  HeuristicDescriptor = 4,
  PlanDescriptor = 5,
  ForwardDescriptor = 10,
  BackwardWeightsDescriptor = 11,
  BackwardDataDescriptor = 12,
  PointwiseOperationDescriptor = 13,
  StatisticsDescriptor = 14,
  GraphDescriptor = 15,
  PackDescriptor = 16,
  TensorDescriptor = 17,
  ProductDescriptor = 18,
  ProductOperationDescriptor = 19,
  ReductionDescriptor = 21,
  ReductionOperationDescriptor = 22,
  NormWeightsDescriptor = 23,
  ReshapeDescriptor = 31
};

enum AttributeType {
  HandleType = 0,
  DataTypeType = 1,
  BooleanType = 2,
  Int64Type = 3,
  FloatType = 4,
  PointerType = 6,
  ConvolutionModeType = 7,
  HeuristicModeType = 8,
  NumericalNoteType = 11,
  PointwiseModeType = 14,
  DescriptorsType = 15,
  StatisticsModeType = 16,
  ReductionType = 18
};

enum Attribute {
  PointwiseMode = 0,
  PointwisePrecision = 1,
  PointwiseAxis = 9,
  ConvolutionCompute = 100,
  ConvolutionMode = 101,
  ConvolutionDilations = 102,
  ConvolutionStrides = 103,
  ConvolutionPostPaddings = 104,
  ConvolutionPrePaddings = 105,
  ConvolutionSpatialDims = 106,
  HeuristicMode = 200,
  HeuristicGraph = 201,
  HeuristicResults = 202,
  ConfigEngine = 300,
  PlanHandle = 400,
  PlanConfig = 401,
  PlanWorkspace = 402,
  ForwardAlpha = 700,
  ForwardBeta = 701,
  ForwardConvolution = 702,
  ForwardW = 703,
  ForwardX = 704,
  ForwardY = 705,
  BackwardDataAlpha = 706,
  BackwardDataBeta = 707,
  BackwardDataConvolution = 708,
  BackwardDataW = 709,
  BackwardDataX = 710,
  BackwardDataY = 711,
  BackwardWeightsAlpha = 712,
  BackwardWeightsBeta = 713,
  BackwardWeightsConvolution = 714,
  BackwardWeightsW = 715,
  BackwardWeightsX = 716,
  BackwardWeightsY = 717,
  PointwiseDescriptorOf = 750,
  PointwiseX = 751,
  PointwiseB = 752,
  PointwiseY = 753,
  PointwiseGradientX = 756,
  PointwiseGradientY = 757,
  PointwiseT = 758,
  StatisticsMode = 770,
  StatisticsPrecision = 771,
  StatisticsX = 772,
  StatisticsSum = 773,
  StatisticsSquares = 774,
  GraphHandle = 800,
  GraphOperations = 801,
  TensorAlignment = 900,
  TensorDataType = 901,
  TensorDimensions = 902,
  TensorStrides = 903,
  TensorId = 906,
  TensorIsVirtual = 907,
  TensorIsNumber = 908,
  PackIds = 1000,
  PackPointers = 1001,
  PackWorkspace = 1003,
  EngineNotes = 1303,
  ProductPrecision = 1500,
  ProductA = 1520,
  ProductB = 1521,
  ProductC = 1522,
  ProductDescriptorOf = 1523,
  ReductionOperator = 1600,
  ReductionPrecision = 1601,
  ReductionIsDeterministic = 1602,
  ReductionX = 1610,
  ReductionY = 1611,
  ReductionDescriptorOf = 1612,
  NormPrecision = 1620,
  NormMean = 1621,
  NormInverse = 1622,
  NormScale = 1623,
  NormX = 1624,
  NormGradient = 1625,
  NormScaleSum = 1626,
  NormShiftSum = 1627,
  NormApplyGradient = 1628,
  NormApplyX = 1629,
  NormApplyShift = 1630,
  ReshapeX = 2200,
  ReshapeY = 2201
};

enum PointwiseFunction {
  Add = 0,
  Multiply = 1,
  Divide = 6,
  Subtract = 9,
  Exponential = 13,
  Logarithm = 15,
  Identity = 21,
  ReluGradient = 200,
  GreaterOrEqual = 303,
  Index = 501,
  Select = 601
};
enum Reduction { ReduceAdd = 0, ReduceMaximum = 3 };
enum { SumAndSquares = 0, HeuristicA = 3, NoteNondeterministic = 4, NoteCount = 10, Integer = 4, Boolean = 11 };

} // namespace mpt::rt::dnn

#endif
