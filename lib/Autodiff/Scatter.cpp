// SPDX-License-Identifier: Apache-2.0
// Gradients of scatters: the gradient of an update is gathered from its place.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

namespace mpt {

MPT_GRADIENT(ScatterAddOp) {
  b.give(op.getUpdates(), [&] { return b.make<GatherOp>(b.dy(), op.getIndices(), op.getAxis()); });
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

/// Of the elements that meet at a position, equal extrema share the gradient evenly, the data's own element among them.
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

void attachScatterGradients(MLIRContext *context) {
  attachGradients<ScatterAddOp, ScatterElementsOp, ScatterNDOp>(context);
}

} // namespace mpt
