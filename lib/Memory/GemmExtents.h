// SPDX-License-Identifier: Apache-2.0
// GEMMs over more than their matrices, so that every extent along memory is one that the library's fast kernels take.
#ifndef MPT_LIB_MEMORY_GEMMEXTENTS_H
#define MPT_LIB_MEMORY_GEMMEXTENTS_H

#include "mpt/Memory/Bufferization.h"

namespace mpt::memory {

/// A matrix in memory; one of its strides is 1.
struct Matrix {
  mlir::Value memref;
  int64_t rows, cols, rowStride, colStride;

  bool isByRows() const { return colStride == 1 || cols == 1; }
  /// The extent along memory, and the other one.
  int64_t &inner() { return isByRows() ? cols : rows; }
  int64_t &outer() { return isByRows() ? rows : cols; }
  int64_t &pitch() { return isByRows() ? rowStride : colStride; }
};

/// A GEMM's operands a [m, k], b [k, n] and result d [m, n].
struct GemmMatrices {
  Matrix a, b, d;
};

/// Where it pays, `call` with extents rounded up to whole pieces of BufferizationPolicy::extentBytes. The padding
/// behind the operands is zero then, and nobody reads the padding behind the result. Where there is no room behind the
/// result, `call.d.memref` becomes another buffer. `isOwn`: the result's readers take that one.
void roundExtents(mlir::Location loc, GemmMatrices &call, bool isOwn, BufferizationState &state);

} // namespace mpt::memory

#endif // MPT_LIB_MEMORY_GEMMEXTENTS_H
