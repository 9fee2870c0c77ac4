// The runtime's own declarations of CUDA against NVIDIA's headers, where those are to be had: numbers and layouts.
#include "cuda/Blas.h"
#include "cuda/Convolutions.h"
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
static_assert(sizeof(dnn::Performance) == sizeof(cudnnConvolutionFwdAlgoPerf_t));
static_assert(sizeof(dnn::Performance) == sizeof(cudnnConvolutionBwdFilterAlgoPerf_t));
static_assert(offsetof(dnn::Performance, memory) == offsetof(cudnnConvolutionFwdAlgoPerf_t, memory));
static_assert(offsetof(dnn::Performance, determinism) == offsetof(cudnnConvolutionBwdDataAlgoPerf_t, determinism));
static_assert(offsetof(dnn::Performance, mathType) == offsetof(cudnnConvolutionBwdDataAlgoPerf_t, mathType));

int main() {
  printf("cuda-header: passed (CUDA %d, cuBLAS %d, cuDNN %d)\n", CUDA_VERSION, CUBLAS_VERSION, CUDNN_VERSION);
  return 0;
}
