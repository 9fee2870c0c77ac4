// SPDX-License-Identifier: Apache-2.0
// cuBLASLt, opened at run time: the functions and constants that GEMMs need, declared here so that building needs no
// CUDA. They follow NVIDIA's cuBLASLt API reference (versions 12 and 13).
#ifndef MPT_RUNTIME_CUDA_BLAS_H
#define MPT_RUNTIME_CUDA_BLAS_H

#include "cuda/CudaDevice.h"

#include <memory>
#include <string>

namespace mpt::rt {

namespace lt {

using Status = int; // cublasStatus_t
using Handle = struct cublasLtContext *;
using MatmulDesc = struct cublasLtMatmulDescOpaque_t *;
using Layout = struct cublasLtMatrixLayoutOpaque_t *;
using Preference = struct cublasLtMatmulPreferenceOpaque_t *;

enum : Status { Success = 0, NotSupported = 15 };
enum DataType { R32F = 0, R64F = 1, R16F = 2, R16BF = 14, R8FE4M3 = 28, R8FE5M2 = 29 };
enum ComputeType { Compute32F = 68, Compute64F = 70, Compute32FFromTF32 = 77 };
enum DescAttribute {
  TransA = 3,
  TransB = 4,
  EpilogueAttribute = 7,
  BiasPointer = 8,
  AuxPointer = 11,
  AuxLead = 12,
  ScaleA = 17,
  ScaleB = 18,
  FastSums = 25,
  BiasDataType = 26
};
enum LayoutAttribute { BatchCount = 5, StridedBatchOffset = 6 };
enum PreferenceAttribute {
  MaxWorkspace = 1,
  ReductionSchemes = 3,
  AlignmentA = 5,
  AlignmentB = 6,
  AlignmentC = 7,
  AlignmentD = 8
};
/// Where an algorithm that splits K adds up its parts. Without one it does not split, which is always allowed.
enum ReductionScheme { SumsInPlace = 1, SumsInComputeType = 2, SumsInOutputType = 4 };
enum Epilogue {
  Default = 1,
  Relu = 2,
  Bias = 4,
  SumD = 16, // with a gradient
  Gelu = 32,
  Aux = 128, // written beside an activation
  ReluGradient = 136,
  GeluGradient = 192,
  SumA = 256,
  SumB = 512
};
enum Operation { N = 0, T = 1 };

struct Algorithm { // cublasLtMatmulAlgo_t: opaque, may be stored and used again with the same version
  uint64_t data[8];
};
struct Heuristic { // cublasLtMatmulHeuristicResult_t
  Algorithm algorithm;
  size_t workspace;
  Status state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Heuristic) == 96, "the layout of cublasLtMatmulHeuristicResult_t");

struct Functions {
  Status (*Create)(Handle *handle);
  Status (*Destroy)(Handle handle);
  size_t (*GetVersion)();
  Status (*MatmulDescCreate)(MatmulDesc *desc, int compute, int scale);
  Status (*MatmulDescDestroy)(MatmulDesc desc);
  Status (*MatmulDescSetAttribute)(MatmulDesc desc, int attribute, const void *value, size_t bytes);
  Status (*MatrixLayoutCreate)(Layout *layout, int type, uint64_t rows, uint64_t cols, int64_t lead);
  Status (*MatrixLayoutDestroy)(Layout layout);
  Status (*MatrixLayoutSetAttribute)(Layout layout, int attribute, const void *value, size_t bytes);
  Status (*MatmulPreferenceCreate)(Preference *preference);
  Status (*MatmulPreferenceDestroy)(Preference preference);
  Status (*MatmulPreferenceSetAttribute)(Preference preference, int attribute, const void *value, size_t bytes);
  Status (*MatmulAlgoGetHeuristic)(Handle handle, MatmulDesc desc, Layout a, Layout b, Layout c, Layout d,
                                   Preference preference, int wanted, Heuristic *results, int *found);
  Status (*Matmul)(Handle handle, MatmulDesc desc, const void *alpha, const void *a, Layout layoutA, const void *b,
                   Layout layoutB, const void *beta, const void *c, Layout layoutC, void *d, Layout layoutD,
                   const Algorithm *algorithm, void *workspace, size_t workspaceBytes, cu::Stream stream);
};

} // namespace lt

/// cuBLASLt on one device.
class BlasLibrary {
public:
  /// Opens the file of option cublaslt, or libcublasLt.so of CUDA 13 or 12. Null with an error text where there is
  /// none.
  static std::unique_ptr<BlasLibrary> open(CudaDevice &device);
  ~BlasLibrary();

  const lt::Functions &api;
  lt::Handle handle = nullptr;

  std::string maker; ///< device and version, for choices

  /// Scratch that algorithms may use.
  static constexpr int64_t workspaceBytes = 32 << 20;

private:
  explicit BlasLibrary(const lt::Functions &api) : api(api) {}
};

} // namespace mpt::rt

#endif
