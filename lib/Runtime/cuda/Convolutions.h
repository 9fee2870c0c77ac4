// SPDX-License-Identifier: Apache-2.0
// cuDNN of version 9, opened at run time: declared here so that building needs no CUDA. Convolutions without it.
// Names and numbers follow NVIDIA's cuDNN API reference.
#ifndef MPT_RUNTIME_CUDA_CONVOLUTIONS_H
#define MPT_RUNTIME_CUDA_CONVOLUTIONS_H

#include "cuda/CudaDevice.h"

namespace mpt::rt {

namespace dnn {

using Status = int; // cudnnStatus_t
using Handle = struct cudnnContext *;

enum DataType { Float = 0, Double = 1, Half = 2, BFloat16 = 9 };
enum { CrossCorrelation = 1 };

struct Functions {
  Status (*Create)(Handle *handle);
  Status (*Destroy)(Handle handle);
  size_t (*GetVersion)();
  const char *(*GetErrorString)(Status status);
  Status (*SetStream)(Handle handle, cu::Stream stream);
};

struct GraphFunctions;

} // namespace dnn

/// cuDNN's number of an element type, -1 for types that it is not asked about.
inline int dnnType(int64_t dtype) {
  return dtype == MPT_FLOAT32    ? dnn::Float
         : dtype == MPT_FLOAT16  ? dnn::Half
         : dtype == MPT_BFLOAT16 ? dnn::BFloat16
                                 : -1;
}

class PlanCache;

/// cuDNN on one device.
class ConvLibrary {
public:
  /// Opens the file of option cudnn, or libcudnn.so.9. Null where there is none. cuBLASLt has to be
  /// open: cuDNN looks for it when it needs it, and ends the process where it finds none.
  static std::unique_ptr<ConvLibrary> open(CudaDevice &device);
  ~ConvLibrary();

  const dnn::Functions &api;
  const dnn::GraphFunctions *graphs; ///< null where the library lacks one of them
  dnn::Handle handle = nullptr;
  std::string maker; ///< device and version, for choices
  std::unique_ptr<PlanCache> plans;

  /// Most scratch that an algorithm may ask for.
  static constexpr int64_t workspaceBytes = 256 << 20;

private:
  ConvLibrary(const dnn::Functions &api, const dnn::GraphFunctions *graphs);
};

/// A convolution without cuDNN: by a direct kernel, the implicit-GEMM kernels or columns, whichever is fastest on the
/// operands in the first run.
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

/// Depthwise ones directly (lib/Target/CUDA/DepthwiseKernels.cpp).
mpt_status convDirect(const mpt_exec *exec, std::unique_ptr<SiteCache> &slot, const mpt_conv_desc &desc, void *x,
                      void *w, void *y);
/// Whether the library has a kernel for this shape, and the operands are aligned for it.
bool hasDirectKernel(const CudaDevice &device, const mpt_conv_desc &desc, const void *x, const void *w, const void *y);

} // namespace mpt::rt

#endif
