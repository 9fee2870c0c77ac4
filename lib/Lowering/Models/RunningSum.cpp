// SPDX-License-Identifier: Apache-2.0
// The kernel of running sums along an axis.
#include "mpt/Lowering/Models/RunningSum.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"
#include "mpt/Lowering/Emission/Reductions.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mpt;

CumSumOp mpt::runningSumOf(FusionOp fusion) {
  Operation *yield = fusion.getBody().front().getTerminator();
  return yield->getNumOperands() == 1 ? yield->getOperand(0).getDefiningOp<CumSumOp>() : CumSumOp();
}

LaneUnits mpt::runningSumUnits(CumSumOp op, int64_t chunk) {
  ArrayRef<int64_t> shape = shapeOf(op.getY());
  return LaneUnits(computeProduct(shape.take_front(op.getAxis())), computeProduct(shape.drop_front(op.getAxis() + 1)),
                   chunk);
}

/// The sums of one line, or of as many as `at` has lanes. at[axis] is set here.
static void emitLine(ElementEmitter &e, CumSumOp op, Value buffer, SmallVector<IndexExpr> at) {
  int64_t axis = op.getAxis(), extent = shapeOf(op.getY())[axis];
  Type element = elementOf(op.getX()), type = runningType(element, numericsOf(op));
  Accumulator sum{ReduceKind::sum, type, type};
  unsigned lanes = e.laneWidth(at);
  Value start = e.splat(sum.identity(e, type), lanes);
  e.loop(e.indexConstant(0), e.indexConstant(extent), extent, 1, {start}, [&](const IndexExpr &i, ValueRange carried) {
    at[axis] = op.getReverse() ? e.space.add(e.space.scale(i, -1), IndexExpr(extent - 1)) : i;
    Value x = e.element(op.getX(), at);
    x = e.splat(isa<FloatType>(type) ? MathBuilder(e).toFloat(x, type) : x, lanes);
    Value next = sum.combine(e, carried[0], x);
    e.store(finishSum(e, op.getExclusive() ? carried[0] : next, element), buffer, at);
    return SmallVector<Value>{next};
  });
}

void mpt::emitRunningSum(ElementEmitter &e, CumSumOp op, Value buffer, Value begin, Value end, const LaneUnits &units) {
  ArrayRef<int64_t> shape = shapeOf(op.getY());
  int64_t rank = shape.size(), axis = op.getAxis();
  SmallVector<int64_t> before = llvm::to_vector(llvm::seq<int64_t>(0, axis));
  SmallVector<int64_t> behind = llvm::to_vector(llvm::seq<int64_t>(axis + 1, rank));
  units.walk(e, begin, end, [&](const IndexExpr &row, LaneUnits::Lanes lanes) {
    SmallVector<IndexExpr> at(rank);
    e.spread(row, shape, before, at);
    lanes([&](const IndexExpr &lane) {
      e.spread(lane, shape, behind, at);
      emitLine(e, op, buffer, at);
    });
  });
}
