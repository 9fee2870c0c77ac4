// cuDNN's graph interface, opened at run time, and convolutions that sum up their results by channel.
// Names and numbers are those of NVIDIA's cuDNN backend API reference.
#ifndef MPT_RUNTIME_CUDA_CONVGRAPH_H
#define MPT_RUNTIME_CUDA_CONVGRAPH_H

#include "cuda/Convolutions.h"

namespace mpt::rt {

namespace dnn {

using Descriptor = void *; // cudnnBackendDescriptor_t

enum DescriptorType {
  PointwiseDescriptor = 0,
  ConvolutionDescriptor = 1,
  EngineDescriptor = 2,
  EngineConfigDescriptor = 3,
  HeuristicDescriptor = 4,
  PlanDescriptor = 5,
  ForwardDescriptor = 10,
  PointwiseOperationDescriptor = 13,
  StatisticsDescriptor = 14,
  GraphDescriptor = 15,
  PackDescriptor = 16,
  TensorDescriptor = 17
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
  StatisticsModeType = 16
};

enum Attribute {
  PointwiseMode = 0,
  PointwisePrecision = 1,
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
  PointwiseDescriptorOf = 750,
  PointwiseX = 751,
  PointwiseY = 753,
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
  PackIds = 1000,
  PackPointers = 1001,
  PackWorkspace = 1003,
  EngineNotes = 1303
};

enum { Identity = 21, SumAndSquares = 0, HeuristicA = 3, NoteNondeterministic = 4, NoteCount = 10 };

struct GraphFunctions {
  Status (*BackendCreateDescriptor)(int type, Descriptor *descriptor);
  Status (*BackendDestroyDescriptor)(Descriptor descriptor);
  Status (*BackendFinalize)(Descriptor descriptor);
  Status (*BackendSetAttribute)(Descriptor descriptor, int name, int type, int64_t count, const void *elements);
  Status (*BackendGetAttribute)(Descriptor descriptor, int name, int type, int64_t wanted, int64_t *count,
                                void *elements);
  Status (*BackendExecute)(Handle handle, Descriptor plan, Descriptor pack);
};

} // namespace dnn

/// What it takes to call a convolution once more, with its sums.
class ConvWithSums {
public:
  virtual ~ConvWithSums() = default;
  virtual mpt_status run(CudaDevice &device, void *x, void *w, void *y, float *sums) = 0;
};

/// The fastest deterministic engine that computes a forward convolution and, by channel, the sums of its results and of
/// their squares, measured on the operands. Null where cuDNN has none, or the operands are less aligned than it takes.
/// One plan serves all convolutions of one description.
std::shared_ptr<ConvWithSums> planConvWithSums(CudaDevice &device, ConvLibrary &library, const mpt_conv_desc &desc,
                                               void *x, void *w, void *y, float *sums);

} // namespace mpt::rt

#endif
