// SPDX-License-Identifier: Apache-2.0
// Numbers of cuDNN's graph interface.
// Names and numbers follow NVIDIA's cuDNN backend API reference.
#ifndef MPT_RUNTIME_CUDA_GRAPHNAMES_H
#define MPT_RUNTIME_CUDA_GRAPHNAMES_H

#include "cuda/Convolutions.h"
#include "cuda/GraphAttributes.h"

namespace mpt::rt::dnn {

using Descriptor = void *; // cudnnBackendDescriptor_t

enum DescriptorType {
  PointwiseDescriptor = 0,
  ConvolutionDescriptor = 1,
  EngineDescriptor = 2,
  EngineConfigDescriptor = 3,
  HeuristicDescriptor = 4,
  PlanDescriptor = 5,
  KnobDescriptor = 7,
  ForwardDescriptor = 10,
  BackwardWeightsDescriptor = 11,
  BackwardDataDescriptor = 12,
  PointwiseOperationDescriptor = 13,
  StatisticsDescriptor = 14,
  GraphDescriptor = 15,
  PackDescriptor = 16,
  TensorDescriptor = 17,
  MatmulDescriptor = 18,
  MatmulOperationDescriptor = 19,
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
  KnobTypeType = 9,
  NumericalNoteType = 11,
  PointwiseModeType = 14,
  DescriptorsType = 15,
  StatisticsModeType = 16,
  ReductionType = 18
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
enum { SumAndSquares = 0, HeuristicFallback = 2, HeuristicA = 3, NoteCount = 10, Integer = 4, Boolean = 11 };
enum NumericalNote {
  NoteTensorCore = 0,
  NoteDownConvert = 1,
  NoteNarrowSums = 2,
  NoteFft = 3,
  NoteNondeterministic = 4,
  NoteLastWinograd = 8
};

} // namespace mpt::rt::dnn

#endif
