// The runtime's own declarations of CUDA against NVIDIA's headers, where those are to be had: numbers and layouts.
#include "cuda/Blas.h"
#include "cuda/ConvGraph.h"
#include "cuda/Driver.h"

#include <cstdio>
#include <cublasLt.h>
#include <cuda.h>
#include <cudnn.h>

using namespace mpt::rt;

#define SAME(ours, theirs) static_assert(static_cast<int>(ours) == static_cast<int>(theirs), #ours)

SAME(cu::Success, CUDA_SUCCESS);
SAME(cu::InvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME(cu::OutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME(cu::NoDevice, CUDA_ERROR_NO_DEVICE);
SAME(cu::InvalidDevice, CUDA_ERROR_INVALID_DEVICE);
SAME(cu::NoBinary, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(cu::MultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(cu::CapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(cu::CapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(cu::PointerMemoryType, CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
SAME(cu::PointerDeviceOrdinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
SAME(cu::MemoryHost, CU_MEMORYTYPE_HOST);
SAME(cu::MemoryDevice, CU_MEMORYTYPE_DEVICE);
SAME(cu::StreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME(cu::EventDefault, CU_EVENT_DEFAULT);
SAME(cu::EventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME(cu::CaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(cu::MaxDynamicShared, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(cu::JitErrorLog, CU_JIT_ERROR_LOG_BUFFER);
SAME(cu::JitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);

SAME(lt::NotSupported, CUBLAS_STATUS_NOT_SUPPORTED);
SAME(lt::R32F, CUDA_R_32F);
SAME(lt::R64F, CUDA_R_64F);
SAME(lt::R16F, CUDA_R_16F);
SAME(lt::R16BF, CUDA_R_16BF);
SAME(lt::R8FE4M3, CUDA_R_8F_E4M3);
SAME(lt::R8FE5M2, CUDA_R_8F_E5M2);
SAME(lt::Compute32F, CUBLAS_COMPUTE_32F);
SAME(lt::Compute64F, CUBLAS_COMPUTE_64F);
SAME(lt::TransA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(lt::TransB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(lt::EpilogueAttribute, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(lt::BiasPointer, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(lt::ScaleA, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(lt::ScaleB, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER);
SAME(lt::BiasDataType, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(lt::BatchCount, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(lt::StridedBatchOffset, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(lt::MaxWorkspace, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(lt::AlignmentA, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(lt::AlignmentB, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(lt::AlignmentC, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(lt::AlignmentD, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(lt::Default, CUBLASLT_EPILOGUE_DEFAULT);
SAME(lt::Relu, CUBLASLT_EPILOGUE_RELU);
SAME(lt::Bias, CUBLASLT_EPILOGUE_BIAS);
SAME(lt::Relu | lt::Bias, CUBLASLT_EPILOGUE_RELU_BIAS);
SAME(lt::Gelu, CUBLASLT_EPILOGUE_GELU);
SAME(lt::Gelu | lt::Bias, CUBLASLT_EPILOGUE_GELU_BIAS);
SAME(lt::N, CUBLAS_OP_N);
SAME(lt::T, CUBLAS_OP_T);
static_assert(sizeof(lt::Algorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(lt::Heuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(lt::Heuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(lt::Heuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

SAME(dnn::Float, CUDNN_DATA_FLOAT);
SAME(dnn::Half, CUDNN_DATA_HALF);
SAME(dnn::BFloat16, CUDNN_DATA_BFLOAT16);
SAME(dnn::ChannelsLast, CUDNN_TENSOR_NHWC);
SAME(dnn::CrossCorrelation, CUDNN_CROSS_CORRELATION);
SAME(dnn::Deterministic, CUDNN_DETERMINISTIC);
SAME(dnn::TensorMath, CUDNN_TENSOR_OP_MATH);
SAME(dnn::FmaMath, CUDNN_FMA_MATH);
SAME(dnn::PointwiseDescriptor, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(dnn::ConvolutionDescriptor, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
SAME(dnn::EngineDescriptor, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(dnn::EngineConfigDescriptor, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(dnn::HeuristicDescriptor, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(dnn::PlanDescriptor, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(dnn::ForwardDescriptor, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
SAME(dnn::PointwiseOperationDescriptor, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(dnn::StatisticsDescriptor, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
SAME(dnn::GraphDescriptor, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(dnn::PackDescriptor, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(dnn::TensorDescriptor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(dnn::HandleType, CUDNN_TYPE_HANDLE);
SAME(dnn::DataTypeType, CUDNN_TYPE_DATA_TYPE);
SAME(dnn::BooleanType, CUDNN_TYPE_BOOLEAN);
SAME(dnn::Int64Type, CUDNN_TYPE_INT64);
SAME(dnn::FloatType, CUDNN_TYPE_FLOAT);
SAME(dnn::PointerType, CUDNN_TYPE_VOID_PTR);
SAME(dnn::ConvolutionModeType, CUDNN_TYPE_CONVOLUTION_MODE);
SAME(dnn::HeuristicModeType, CUDNN_TYPE_HEUR_MODE);
SAME(dnn::NumericalNoteType, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(dnn::PointwiseModeType, CUDNN_TYPE_POINTWISE_MODE);
SAME(dnn::DescriptorsType, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(dnn::StatisticsModeType, CUDNN_TYPE_GENSTATS_MODE);
SAME(dnn::PointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
SAME(dnn::PointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(dnn::ConvolutionCompute, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
SAME(dnn::ConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
SAME(dnn::ConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
SAME(dnn::ConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
SAME(dnn::ConvolutionPostPaddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
SAME(dnn::ConvolutionPrePaddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
SAME(dnn::ConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
SAME(dnn::HeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(dnn::HeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(dnn::HeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(dnn::ConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(dnn::PlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(dnn::PlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(dnn::PlanWorkspace, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(dnn::ForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
SAME(dnn::ForwardBeta, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
SAME(dnn::ForwardConvolution, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
SAME(dnn::ForwardW, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
SAME(dnn::ForwardX, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
SAME(dnn::ForwardY, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
SAME(dnn::PointwiseDescriptorOf, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(dnn::PointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(dnn::PointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(dnn::StatisticsMode, CUDNN_ATTR_OPERATION_GENSTATS_MODE);
SAME(dnn::StatisticsPrecision, CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC);
SAME(dnn::StatisticsX, CUDNN_ATTR_OPERATION_GENSTATS_XDESC);
SAME(dnn::StatisticsSum, CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC);
SAME(dnn::StatisticsSquares, CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC);
SAME(dnn::GraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(dnn::GraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(dnn::TensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(dnn::TensorDataType, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(dnn::TensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(dnn::TensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(dnn::TensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(dnn::TensorIsVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(dnn::PackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(dnn::PackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(dnn::PackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(dnn::EngineNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(dnn::Identity, CUDNN_POINTWISE_IDENTITY);
SAME(dnn::SumAndSquares, CUDNN_GENSTATS_SUM_SQSUM);
SAME(dnn::HeuristicA, CUDNN_HEUR_MODE_A);
SAME(dnn::NoteNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
SAME(dnn::NoteCount, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
static_assert(sizeof(dnn::Performance) == sizeof(cudnnConvolutionFwdAlgoPerf_t));
static_assert(sizeof(dnn::Performance) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t));
static_assert(offsetof(dnn::Performance, memory) == offsetof(cudnnConvolutionFwdAlgoPerf_t, memory));
static_assert(offsetof(dnn::Performance, determinism) == offsetof(cudnnConvolutionBwdDataAlgoPerf_t, determinism));
static_assert(offsetof(dnn::Performance, mathType) == offsetof(cudnnConvolutionBwdDataAlgoPerf_t, mathType));

int main() {
  printf("cuda-header: passed (CUDA %d, cuBLAS %d, cuDNN %d)\n", CUDA_VERSION, CUBLAS_VERSION, CUDNN_VERSION);
  return 0;
}
