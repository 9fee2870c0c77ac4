// SPDX-License-Identifier: Apache-2.0
// Types of the MatMul family.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(MatMulOp) {
  RankedTensorType a = tensorType(adaptor.getA()), b = tensorType(adaptor.getB());
  int64_t rank = a.getRank();
  if (rank < 2 || b.getRank() != rank)
    return emitOptionalError(loc, "C1: expected two matrices of one rank of at least 2, got ", a, " and ", b);
  if (a.getShape().drop_back(2) != b.getShape().drop_back(2))
    return emitOptionalError(loc, "C2: expected equal batch extents, got ", a, " and ", b);
  bool transposeA = adaptor.getTransposeA(), transposeB = adaptor.getTransposeB();
  int64_t m = a.getDimSize(rank - (transposeA ? 1 : 2)), ka = a.getDimSize(rank - (transposeA ? 2 : 1));
  int64_t kb = b.getDimSize(rank - (transposeB ? 1 : 2)), n = b.getDimSize(rank - (transposeB ? 2 : 1));
  if (ka != kb)
    return emitOptionalError(loc, "C3: expected equal contracted extents, got ", ka, " and ", kb);
  if (a.getElementType().isF64() != b.getElementType().isF64())
    return emitOptionalError(loc, "expected FP64 in both matrices or none, got ", a, " and ", b);
  SmallVector<int64_t> shape(a.getShape().drop_back(2));
  shape.append({m, n});
  types.push_back(a.clone(shape));
  return success();
}
MPT_SAME_SHAPES(MatMulOp)
