// SPDX-License-Identifier: Apache-2.0
// Types of pooling.
#include "TypeInference.h"
#include "Windows.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

template <typename Adaptor> static FailureOr<RankedTensorType> poolType(std::optional<Location> loc, Adaptor op) {
  RankedTensorType x = tensorType(op.getX());
  if (x.getRank() < 3)
    return emitOptionalError(loc, "expected N, C and spatial dimensions, got ", x);
  SmallVector<int64_t> shape(x.getShape().take_front(2));
  SlidingWindow window{op.getKernel(), op.getStrides(), op.getDilations(), op.getPadsLow(), op.getPadsHigh()};
  if (failed(slide(loc, x.getShape().drop_front(2), window, shape)))
    return failure();
  return x.clone(shape);
}
MPT_INFER(MaxPoolOp) {
  auto y = poolType(loc, adaptor);
  if (failed(y))
    return failure();
  types.append({*y, y->clone(IntegerType::get(context, 32))});
  return success();
}
MPT_INFER(AvgPoolOp) {
  auto y = poolType(loc, adaptor);
  if (failed(y))
    return failure();
  types.push_back(*y);
  return success();
}
