// SPDX-License-Identifier: Apache-2.0
// Types of scatters.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(ScatterElementsOp) {
  if (tensorType(adaptor.getIndices()).getShape() != tensorType(adaptor.getUpdates()).getShape())
    return emitOptionalError(loc, "expected indices and updates of one shape");
  RankedTensorType data = tensorType(adaptor.getData()), indices = tensorType(adaptor.getIndices());
  if (!canIndexElements(data.getShape(), indices.getShape(), adaptor.getAxis()))
    return emitOptionalError(loc, "expected indices into ", data, " along axis ", adaptor.getAxis(), ", got ", indices);
  types.push_back(adaptor.getData().getType());
  return success();
}

MPT_INFER(ScatterNDOp) {
  RankedTensorType data = tensorType(adaptor.getData()), indices = tensorType(adaptor.getIndices());
  const int64_t batch = adaptor.getBatchDims();
  if (!canIndexTuples(data.getShape(), indices.getShape(), batch))
    return emitOptionalError(loc, "expected index tuples into ", data, " behind ", batch, " dimensions, got ", indices);
  SmallVector<int64_t> slices(indices.getShape().drop_back());
  llvm::append_range(slices, data.getShape().drop_front(batch + indices.getShape().back()));
  if (tensorType(adaptor.getUpdates()).getShape() != ArrayRef<int64_t>(slices))
    return emitOptionalError(loc, "expected updates of shape [", ArrayRef<int64_t>(slices), "], got ",
                             adaptor.getUpdates().getType());
  types.push_back(adaptor.getData().getType());
  return success();
}
