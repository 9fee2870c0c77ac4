// SPDX-License-Identifier: Apache-2.0
// cuDNN, opened at run time: the convolution functions of its version 9, declared here so that building needs no CUDA.
// Names and numbers are those of NVIDIA's cuDNN API reference.
#ifndef MPT_RUNTIME_CUDA_CONVOLUTIONS_H
#define MPT_RUNTIME_CUDA_CONVOLUTIONS_H

#include "cuda/CudaDevice.h"

namespace mpt::rt {

namespace dnn {

using Status = int; // cudnnStatus_t
using Handle = struct cudnnContext *;
using TensorDesc = struct cudnnTensorStruct *;
using FilterDesc = struct cudnnFilterStruct *;
using ConvDesc = struct cudnnConvolutionStruct *;

enum DataType { Float = 0, Double = 1, Half = 2, BFloat16 = 9 };
enum { ChannelsLast = 1, CrossCorrelation = 1, Deterministic = 1 };
enum MathType { DefaultMath = 0, TensorMath = 1, FmaMath = 3 };

struct Performance { // cudnnConvolutionFwdAlgoPerf_t and its two siblings
  int algorithm;
  Status status;
  float time;
  size_t memory;
  int determinism;
  int mathType;
  int reserved[3];
};
static_assert(sizeof(Performance) == 48, "the layout of cudnnConvolutionFwdAlgoPerf_t");

struct Functions {
  Status (*Create)(Handle *handle);
  Status (*Destroy)(Handle handle);
  size_t (*GetVersion)();
  const char *(*GetErrorString)(Status status);
  Status (*SetStream)(Handle handle, cu::Stream stream);
  Status (*CreateTensorDescriptor)(TensorDesc *desc);
  Status (*SetTensorNdDescriptor)(TensorDesc desc, int type, int rank, const int *extents, const int *strides);
  Status (*DestroyTensorDescriptor)(TensorDesc desc);
  Status (*CreateFilterDescriptor)(FilterDesc *desc);
  Status (*SetFilterNdDescriptor)(FilterDesc desc, int type, int format, int rank, const int *extents);
  Status (*DestroyFilterDescriptor)(FilterDesc desc);
  Status (*CreateConvolutionDescriptor)(ConvDesc *desc);
  Status (*SetConvolutionNdDescriptor)(ConvDesc desc, int rank, const int *pads, const int *strides,
                                       const int *dilations, int mode, int compute);
  Status (*SetConvolutionGroupCount)(ConvDesc desc, int groups);
  Status (*SetConvolutionMathType)(ConvDesc desc, int type);
  Status (*DestroyConvolutionDescriptor)(ConvDesc desc);
  Status (*FindConvolutionForwardAlgorithmEx)(Handle handle, TensorDesc xDesc, const void *x, FilterDesc wDesc,
                                              const void *w, ConvDesc conv, TensorDesc yDesc, void *y, int wanted,
                                              int *found, Performance *results, void *workspace, size_t bytes);
  Status (*FindConvolutionBackwardDataAlgorithmEx)(Handle handle, FilterDesc wDesc, const void *w, TensorDesc yDesc,
                                                   const void *y, ConvDesc conv, TensorDesc xDesc, void *x, int wanted,
                                                   int *found, Performance *results, void *workspace, size_t bytes);
  Status (*FindConvolutionBackwardFilterAlgorithmEx)(Handle handle, TensorDesc xDesc, const void *x, TensorDesc yDesc,
                                                     const void *y, ConvDesc conv, FilterDesc wDesc, void *w,
                                                     int wanted, int *found, Performance *results, void *workspace,
                                                     size_t bytes);
  Status (*ConvolutionForward)(Handle handle, const void *alpha, TensorDesc xDesc, const void *x, FilterDesc wDesc,
                               const void *w, ConvDesc conv, int algorithm, void *workspace, size_t bytes,
                               const void *beta, TensorDesc yDesc, void *y);
  Status (*ConvolutionBackwardData)(Handle handle, const void *alpha, FilterDesc wDesc, const void *w, TensorDesc yDesc,
                                    const void *y, ConvDesc conv, int algorithm, void *workspace, size_t bytes,
                                    const void *beta, TensorDesc xDesc, void *x);
  Status (*ConvolutionBackwardFilter)(Handle handle, const void *alpha, TensorDesc xDesc, const void *x,
                                      TensorDesc yDesc, const void *y, ConvDesc conv, int algorithm, void *workspace,
                                      size_t bytes, const void *beta, FilterDesc wDesc, void *w);
};

struct GraphFunctions;

} // namespace dnn

/// cuDNN's number of an element type, -1 where it is none of those that it is asked about.
inline int dnnType(int64_t dtype) {
  return dtype == MPT_FLOAT32    ? dnn::Float
         : dtype == MPT_FLOAT16  ? dnn::Half
         : dtype == MPT_BFLOAT16 ? dnn::BFloat16
                                 : -1;
}

class GraphPlan;

/// cuDNN on one device.
class ConvLibrary {
public:
  /// Opens the file of option cudnn ("none": does not) or libcudnn.so.9. Null where there is none.
  static std::unique_ptr<ConvLibrary> open(CudaDevice &device);
  ~ConvLibrary();

  const dnn::Functions &api;
  const dnn::GraphFunctions *graphs; ///< null where the library lacks one of them
  dnn::Handle handle = nullptr;
  /// Plans of convolutions with sums by description, null where there is none: making one compiles code.
  std::map<std::string, std::shared_ptr<GraphPlan>> plans;

  /// Most scratch that an algorithm may ask for.
  static constexpr int64_t workspaceBytes = 256 << 20;

private:
  ConvLibrary(const dnn::Functions &api, const dnn::GraphFunctions *graphs) : api(api), graphs(graphs) {}
};

/// A convolution without cuDNN: by the implicit-GEMM kernels or by columns, whichever is faster on the operands in the
/// first run.
mpt_status convAlone(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &desc, void *x,
                     void *w, void *y);

/// Convolutions as matrices of columns times matrices of weights; needs the kernels that emitted libraries with
/// convolutions carry.
mpt_status convByColumns(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &desc, void *x,
                         void *w, void *y);

/// Likewise as GEMMs of matrices that lie nowhere (lib/Target/CUDA/ConvKernels.cpp).
mpt_status convImplicit(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &desc, void *x,
                        void *w, void *y);
/// Whether the library has a kernel for it.
bool hasImplicitKernel(const CudaDevice &device, const mpt_conv_desc &desc, const void *x, const void *w,
                       const void *y);

} // namespace mpt::rt

#endif
