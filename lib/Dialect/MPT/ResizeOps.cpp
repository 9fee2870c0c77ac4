// SPDX-License-Identifier: Apache-2.0
// Verification of resampling.
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

LogicalResult ResizeOp::verify() {
  RankedTensorType x = tensorType(getX()), y = tensorType(getY());
  size_t count = getAxes().size();
  if (x.getRank() != y.getRank() || getTaps().size() != count || getPositions().size() != count ||
      getWeights().size() != count)
    return emitOpError() << "expected one entry of taps, positions and weights an axis, and equal ranks";
  for (auto [i, axis] : llvm::enumerate(getAxes())) {
    auto positions = dyn_cast<DenseI64ArrayAttr>(getPositions()[i]);
    auto weights = dyn_cast<DenseF64ArrayAttr>(getWeights()[i]);
    int64_t want = y.getDimSize(axis) * getTaps()[i];
    if (!positions || !weights || positions.size() != want || weights.size() != want)
      return emitOpError() << "expected " << want << " positions (array<i64>) and weights (array<f64>) for axis "
                           << axis;
    for (int64_t p : positions.asArrayRef())
      if (p < 0 || p >= x.getDimSize(axis))
        return emitOpError() << "expected positions within axis " << axis << ", got " << p;
  }
  return success();
}
