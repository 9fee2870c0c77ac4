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

MPT_GRADIENT(GatherOp) {
  b.give(op.getX(), [&] { return b.make<ScatterAddOp>(op.getX().getType(), op.getIndices(), b.dy(), op.getAxis()); });
}
MPT_GRADIENT(ScatterAddOp) {
  b.give(op.getUpdates(), [&] { return b.make<GatherOp>(b.dy(), op.getIndices(), op.getAxis()); });
}
MPT_GRADIENT(GatherElementsOp) {
  b.give(op.getX(), [&] {
    return b.make<ScatterElementsOp>(b.splatLike(op.getX(), 0.0), op.getIndices(), b.dy(), op.getAxis(),
                                     ScatterKind::add);
  });
}
MPT_GRADIENT(GatherNDOp) {
  b.give(op.getX(), [&] {
    return b.make<ScatterNDOp>(b.splatLike(op.getX(), 0.0), op.getIndices(), b.dy(), op.getBatchDims(),
                               ScatterKind::add);
  });
}

namespace {
/// A general scatter, read both ways: at its indices.
template <typename Op> struct Indexed;
template <> struct Indexed<ScatterElementsOp> {
  static Value scatter(Backward &b, ScatterElementsOp op, Value data, Value updates, ScatterKind kind) {
    return b.make<ScatterElementsOp>(data, op.getIndices(), updates, op.getAxis(), kind);
  }
  static Value gather(Backward &b, ScatterElementsOp op, Value x) {
    return b.make<GatherElementsOp>(x, op.getIndices(), op.getAxis());
  }
};
template <> struct Indexed<ScatterNDOp> {
  static Value scatter(Backward &b, ScatterNDOp op, Value data, Value updates, ScatterKind kind) {
    return b.make<ScatterNDOp>(data, op.getIndices(), updates, op.getBatchDims(), kind);
  }
  static Value gather(Backward &b, ScatterNDOp op, Value x) {
    return b.make<GatherNDOp>(x, op.getIndices(), op.getBatchDims());
  }
};
} // namespace

/// Of what meets at a position, equal extrema share the gradient evenly, the data's own element among them.
template <typename Op> static void giveExtrema(Backward &b, Op op) {
  Type type = tensorType(op.getData()).getElementType(), wide = wideType(type);
  Value result = op->getResult(0);
  Value ofData = b.compare(Predicate::eq, op.getData(), result);
  Value ofUpdates = b.compare(Predicate::eq, op.getUpdates(), Indexed<Op>::gather(b, op, result));
  Value count = Indexed<Op>::scatter(b, op, b.cast(ofData, wide), b.cast(ofUpdates, wide), ScatterKind::add);
  Value share = b.cast(b.div(b.widen(b.dy()), count), type);
  b.give(op.getData(), [&] { return b.where(ofData, share); });
  b.give(op.getUpdates(), [&] { return b.where(ofUpdates, Indexed<Op>::gather(b, op, share)); });
}

/// dy times the product of the others that meet at a position; exact with zeros, as the gradient of a product over
/// axes.
template <typename Op> static void giveProduct(Backward &b, Op op) {
  auto filled = [&](Value x) { return b.select(b.compare(Predicate::eq, x, 0.0), b.splatLike(x, 1.0), x); };
  auto isZero = [&](Value x) { return b.cast(b.compare(Predicate::eq, x, 0.0), tensorType(x).getElementType()); };
  Value data = b.widen(op.getData()), updates = b.widen(op.getUpdates());
  Value zeros = Indexed<Op>::scatter(b, op, isZero(data), isZero(updates), ScatterKind::add);
  Value product = Indexed<Op>::scatter(b, op, filled(data), filled(updates), ScatterKind::mul);
  Value slope = b.mul(product, b.widen(b.dy()));
  auto give = [&](Value operand, Value x, auto atItsPlaces) {
    b.give(operand, [&] {
      Value others = b.sub(atItsPlaces(zeros), isZero(x));
      return b.where(b.compare(Predicate::eq, others, 0.0), b.div(atItsPlaces(slope), filled(x)));
    });
  };
  give(op.getData(), data, [](Value x) { return x; });
  give(op.getUpdates(), updates, [&](Value x) { return Indexed<Op>::gather(b, op, x); });
}

template <typename Op> static void giveScatter(Backward &b, Op op) {
  switch (op.getKind()) {
  case ScatterKind::assign:
    b.give(op.getData(),
           [&] { return Indexed<Op>::scatter(b, op, b.dy(), b.splatLike(op.getUpdates(), 0.0), ScatterKind::assign); });
    b.give(op.getUpdates(), [&] { return Indexed<Op>::gather(b, op, b.dy()); });
    return;
  case ScatterKind::add:
    b.give(op.getData(), b.dy());
    b.give(op.getUpdates(), [&] { return Indexed<Op>::gather(b, op, b.dy()); });
    return;
  case ScatterKind::max:
  case ScatterKind::min:
    return giveExtrema(b, op);
  case ScatterKind::mul:
    return giveProduct(b, op);
  }
  llvm_unreachable("unknown scatter");
}
MPT_GRADIENT(ScatterElementsOp) { giveScatter(b, op); }
MPT_GRADIENT(ScatterNDOp) { giveScatter(b, op); }

void attachShapeGradients(MLIRContext *context) {
  attachGradients<ReshapeOp, TransposeOp, BroadcastOp, ConcatOp, SliceOp, PadOp, ReverseOp, GatherOp, ScatterAddOp,
                  GatherElementsOp, GatherNDOp, ScatterElementsOp, ScatterNDOp>(context);
}

} // namespace mpt
