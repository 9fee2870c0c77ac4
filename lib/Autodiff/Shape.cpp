// SPDX-License-Identifier: Apache-2.0
// Gradients of data movement: every op's adjoint moves the gradient back, and sums where elements were repeated.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

static ArrayRef<int64_t> shapeOf(Value value) { return tensorType(value).getShape(); }

MPT_GRADIENT(ReshapeOp) {
  b.give(op.getX(), [&] { return b.reshape(b.dy(), shapeOf(op.getX())); });
}
MPT_GRADIENT(TransposeOp) {
  ArrayRef<int64_t> permutation = op.getPermutation();
  SmallVector<int64_t> inverse(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    inverse[from] = to;
  b.give(op.getX(), [&] { return b.transpose(b.dy(), inverse); });
}
MPT_GRADIENT(BroadcastOp) {
  ArrayRef<int64_t> from = shapeOf(op.getX()), to = shapeOf(op.getY()), dims = op.getDims();
  SmallVector<int64_t> repeated = otherAxes(to.size(), dims);
  for (auto [i, dim] : llvm::enumerate(dims))
    if (from[i] != to[dim])
      repeated.push_back(dim);
  llvm::sort(repeated);
  b.give(op.getX(), [&] { return b.reshape(b.sum(b.dy(), repeated), from); });
}
MPT_GRADIENT(ConcatOp) {
  int64_t axis = op.getAxis();
  SmallVector<int64_t> starts(tensorType(op.getY()).getRank(), 0);
  for (Value input : op.getInputs()) {
    b.give(input, [&] { return b.slice(b.dy(), starts, shapeOf(input)); });
    starts[axis] += shapeOf(input)[axis];
  }
}
MPT_GRADIENT(SliceOp) {
  ArrayRef<int64_t> from = shapeOf(op.getX());
  SmallVector<int64_t> low(op.getStarts()), high, interior;
  for (auto [start, size, stride, extent] : llvm::zip_equal(op.getStarts(), op.getSizes(), op.getStrides(), from)) {
    high.push_back(extent - start - (size > 0 ? (size - 1) * stride + 1 : 0));
    interior.push_back(stride - 1);
  }
  b.give(op.getX(), [&] { return b.make<PadOp>(b.dy(), low, high, interior, APFloat(0.0)); });
}
MPT_GRADIENT(PadOp) {
  ArrayRef<int64_t> from = shapeOf(op.getX());
  // Cropped elements get 0: they are put back first, then the margins go.
  SmallVector<int64_t> cropLow, cropHigh, none(from.size(), 0), starts, strides;
  for (auto [low, high, interior] : llvm::zip_equal(op.getLow(), op.getHigh(), op.getInterior())) {
    cropLow.push_back(std::max<int64_t>(-low, 0));
    cropHigh.push_back(std::max<int64_t>(-high, 0));
    starts.push_back(std::max<int64_t>(low, 0));
    strides.push_back(interior + 1);
  }
  b.give(op.getX(), [&] {
    Value whole = b.dy();
    if (cropLow != none || cropHigh != none)
      whole = b.make<PadOp>(whole, cropLow, cropHigh, none, APFloat(0.0));
    return b.slice(whole, starts, from, strides);
  });
}
MPT_GRADIENT(ReverseOp) {
  b.give(op.getX(), [&] { return b.make<ReverseOp>(b.dy(), op.getAxes()); });
}

void attachShapeGradients(MLIRContext *context) {
  attachGradients<ReshapeOp, TransposeOp, BroadcastOp, ConcatOp, SliceOp, PadOp, ReverseOp>(context);
}

} // namespace mpt
