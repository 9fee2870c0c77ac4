// SPDX-License-Identifier: Apache-2.0
// Loop forms of gathers: positions that integer tensors hold.
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

/// `index` (an element of an integer tensor) as a position within `extent`; negative ones count from the end.
IndexExpr wrapped(ElementEmitter &e, Value index, int64_t extent, unsigned depth) {
  ImplicitLocOpBuilder &b = e.b;
  Value wide = getElementTypeOrSelf(index).isInteger(64)
                   ? index
                   : Value(arith::ExtSIOp::create(b, e.typeLike(b.getI64Type(), index), index));
  Value negative = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, wide, e.constantLike(wide, 0.0));
  Value shifted = arith::AddIOp::create(b, wide, e.constantLike(wide, APInt(64, extent)));
  wide = arith::SelectOp::create(b, negative, shifted, wide);
  // An index out of range is the caller's error; it must not become a stray read.
  wide = arith::MaxSIOp::create(b, arith::MinSIOp::create(b, wide, e.constantLike(wide, APInt(64, extent - 1))),
                                e.constantLike(wide, 0.0));
  return e.opaque(wide, extent, depth);
}

struct GatherModel : LoopLowering::ExternalModel<GatherModel, GatherOp> {
  /// The position in a table of single elements is looked up where it is made.
  bool readsOwnIndex(Operation *op, unsigned index) const {
    return index == 1 && rankOf(cast<GatherOp>(op).getX()) == 1;
  }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto gather = cast<GatherOp>(op);
    int64_t axis = gather.getAxis(), rank = rankOf(gather.getIndices());
    SmallVector<IndexExpr> from(at.take_front(axis));
    from.push_back(
        indirectIndex(e, gather.getIndices(), at.slice(axis, rank), tensorType(gather.getX()).getDimSize(axis)));
    llvm::append_range(from, at.drop_front(axis + rank));
    return e.element(gather.getX(), from);
  }
};
struct GatherElementsModel : LoopLowering::ExternalModel<GatherElementsModel, GatherElementsOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto gather = cast<GatherElementsOp>(op);
    int64_t axis = gather.getAxis();
    SmallVector<IndexExpr> from(at);
    from[axis] = indirectIndex(e, gather.getIndices(), at, tensorType(gather.getX()).getDimSize(axis));
    return e.element(gather.getX(), from);
  }
};
struct GatherNDModel : LoopLowering::ExternalModel<GatherNDModel, GatherNDOp> {
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto gather = cast<GatherNDOp>(op);
    RankedTensorType indices = tensorType(gather.getIndices());
    int64_t batch = gather.getBatchDims(), lead = indices.getRank() - 1, count = indices.getShape().back();
    SmallVector<IndexExpr> from(at.take_front(batch)), tuple(at.take_front(lead));
    tuple.push_back(0);
    for (int64_t i = 0; i < count; ++i) {
      tuple.back() = IndexExpr(i);
      from.push_back(indirectIndex(e, gather.getIndices(), tuple, tensorType(gather.getX()).getDimSize(batch + i)));
    }
    llvm::append_range(from, at.drop_front(lead));
    return e.element(gather.getX(), from);
  }
};

struct BucketizeModel : LoopLowering::ExternalModel<BucketizeModel, BucketizeOp> {
  static constexpr size_t chosenSteps = 4;

  /// The boundary of a step after `steps`, of the few that there are: lanes choose faster than they load.
  static Value chosen(ElementEmitter &e, Value boundaries, int64_t step, ArrayRef<Value> steps) {
    SmallVector<Value> left;
    for (int64_t i = step - 1; i < countOf(boundaries); i += 2 * step)
      left.push_back(e.element(boundaries, {IndexExpr(i)}));
    for (Value isAbove : llvm::reverse(steps)) {
      for (size_t i = 0; i < left.size() / 2; ++i) {
        Value low = e.splat(left[2 * i], e.width(isAbove)), high = e.splat(left[2 * i + 1], e.width(isAbove));
        left[i] = arith::SelectOp::create(e.b, isAbove, high, low);
      }
      left.resize(left.size() / 2);
    }
    return left.front();
  }
  bool readsOwnIndex(Operation *, unsigned index) const { return index == 0; }
  /// A binary search without branches: each step adds half as many boundaries as the one before it.
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr> at) const {
    auto bucketize = cast<BucketizeOp>(op);
    int64_t count = countOf(bucketize.getBoundaries());
    Value x = e.element(bucketize.getX(), at);
    Value below = e.splat(e.constant(e.b.getI32Type(), 0), ElementEmitter::width(x));
    MathBuilder m(e);
    SmallVector<Value> steps;
    for (int64_t step = (count + 1) / 2; step > 0; step /= 2) {
      Value next = arith::AddIOp::create(e.b, below, e.constantLike(below, static_cast<double>(step)));
      Value boundary;
      if (steps.size() < chosenSteps) {
        boundary = chosen(e, bucketize.getBoundaries(), step, steps);
      } else {
        Value last = arith::AddIOp::create(e.b, below, e.constantLike(below, static_cast<double>(step - 1)));
        boundary = e.element(bucketize.getBoundaries(), {e.opaque(last, count, e.space.depth(at))});
      }
      boundary = m.toFloat(e.splat(boundary, e.width(x)), getElementTypeOrSelf(x));
      steps.push_back(m.compare(arith::CmpFPredicate::OGE, x, boundary));
      below = arith::SelectOp::create(e.b, steps.back(), next, below);
    }
    Type held = computeType(elementOf(bucketize.getY())), type = e.typeLike(held, below);
    unsigned bits = held.getIntOrFloatBitWidth();
    return bits > 32   ? Value(arith::ExtUIOp::create(e.b, type, below))
           : bits < 32 ? Value(arith::TruncIOp::create(e.b, type, below))
                       : below;
  }
};

} // namespace

IndexExpr mpt::indirectIndex(ElementEmitter &e, Value indices, ArrayRef<IndexExpr> at, int64_t extent) {
  // One variable an element, so that readers at the same index find each other's loads.
  if (std::optional<IndexExpr> known = e.knownPosition(indices, at))
    return *known;
  unsigned depth = e.space.depth(at);
  IndexExpr position = e.at(depth, [&] { return wrapped(e, e.element(indices, at), extent, depth); });
  e.rememberPosition(indices, at, position);
  return position;
}

void mpt::attachGatherModels(MLIRContext *context) {
  GatherOp::attachInterface<GatherModel>(*context);
  GatherElementsOp::attachInterface<GatherElementsModel>(*context);
  BucketizeOp::attachInterface<BucketizeModel>(*context);
  GatherNDOp::attachInterface<GatherNDModel>(*context);
}
