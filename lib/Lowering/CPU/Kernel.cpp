// SPDX-License-Identifier: Apache-2.0
// From a fusion to a kernel: which loops, in which order, which of them in vectors.
#include "mpt/Lowering/CPU/Kernel.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/Reductions.h"
#include "mpt/Lowering/Models/Models.h"
#include "mpt/Lowering/Models/Scatter.h"
#include "mpt/Lowering/Nest/KernelNest.h"

#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

namespace {

class KernelBuilder : KernelNest {
public:
  KernelBuilder(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs, const KernelTarget &target)
      : KernelNest(fusion, inputs, outputs), target(target) {}

  FailureOr<KernelInfo> build(OpBuilder &builder, StringRef name);

private:
  FailureOr<KernelInfo> buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form);
  void chooseVectors();
  int64_t emitNest(ElementEmitter &e, func::FuncOp function);
  void chooseGathered();
  void emitRow(ElementEmitter &e, ValueRange buffers, SmallVector<IndexExpr> at, bool laneGiven);
  func::FuncOp start(OpBuilder &builder, StringRef name) {
    return makeFunction(builder, name, {builder.getIndexType(), builder.getIndexType()});
  }

  const KernelTarget &target;
  int64_t chunk = 0; ///< elements of the lane group in one unit of work; 0: all
  /// Reductions over rows that no element needs: they are gathered where the elements are stored. `before` run first.
  SmallVector<ReduceOp> gathered, before;
};

} // namespace

void KernelBuilder::chooseVectors() {
  if (lane.empty())
    return;
  int64_t extent = extentOf(lane);
  width = target.lanes();
  while (static_cast<int64_t>(width) > extent)
    width /= 2;
  if (laneInRow)
    return;
  // Enough units to share among threads, each long enough to be worth its start.
  int64_t outer = extentOf(kept) / extent;
  int64_t enough = innerLoops ? std::max<int64_t>(width, 64) : 4096;
  if (outer < 64 && extent > enough)
    chunk = enough;
}

/// Without this the elements of a row are computed twice, for their statistics and to be stored.
void KernelBuilder::chooseGathered() {
  SetVector<Operation *> needed;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  options.inclusive = true;
  bool elements = false;
  for (Value output : yielded())
    if (Operation *op = output.getDefiningOp(); !isRowLevel(output)) {
      if (op)
        (void)getBackwardSlice(op, &needed, options);
      elements = true;
    }
  SmallVector<ReduceOp> first, alone;
  for (auto reduce : body().getOps<ReduceOp>()) {
    if (cast<RankedTensorType>(reduce.getX().getType()).getShape() != ArrayRef<int64_t>(shape) ||
        reduce.getAxes() != ArrayRef<int64_t>(row))
      return;
    (needed.contains(reduce) ? first : alone).push_back(reduce);
  }
  // One walk gathers all of them.
  for (ReduceOp reduce : alone)
    if (llvm::any_of(alone, [&](ReduceOp other) { return reduce != other && dependsOn(reduce, other); }))
      return;
  if (!elements || alone.empty())
    return;
  gathered = std::move(alone);
  before = std::move(first);
  // Elements are written while the rest of the row is still read: each may only be read for its own place.
  auto isReadInPlace = [&](OpOperand &use) {
    auto lowering = dyn_cast<LoopLowering>(use.getOwner());
    return isa<ReduceOp>(use.getOwner()) || (lowering && lowering.readsOwnIndex(use.getOperandNumber()));
  };
  llvm::erase_if(inPlace, [&](std::pair<unsigned, unsigned> pair) {
    BlockArgument input = body().getArgument(pair.first);
    return shapeOf(input) != ArrayRef<int64_t>(shape) || !llvm::all_of(input.getUses(), isReadInPlace);
  });
}

void KernelBuilder::emitRow(ElementEmitter &e, ValueRange buffers, SmallVector<IndexExpr> at, bool laneGiven) {
  if (gathered.empty())
    return KernelNest::emitRow(e, buffers, std::move(at), laneGiven);
  SmallVector<IndexExpr> ofRow;
  for (int64_t axis : kept)
    ofRow.push_back(at[axis]);
  auto visit = [&](ArrayRef<IndexExpr> point) { storeOutputs(e, buffers, point, false); };
  Alongside walk{gathered, visit, {}, 1};
  if (laneInRow) {
    SmallVector<int64_t> outer;
    for (int64_t axis : row)
      if (!llvm::is_contained(lane, axis))
        outer.push_back(axis);
    walk.walk = e.walk(shape, outer);
    walk.walk.push_back(lane);
    // Twice the registers overlap the sums of short elements; long ones have work to overlap, and need the registers.
    bool isShort = llvm::range_size(body().without_terminator()) <= 16;
    walk.lanes = isShort && 2 * static_cast<int64_t>(width) <= extentOf(lane) ? 2 * width : width;
  }
  e.alongside = &walk;
  for (ReduceOp reduce : before)
    e.element(reduce.getY(), ofRow);
  storeOutputs(e, buffers, at, true);
  e.element(gathered.front().getY(), ofRow); // where only operations of the rows' values ask for them
  e.alongside = nullptr;
}

/// Returns the number of units.
int64_t KernelBuilder::emitNest(ElementEmitter &e, func::FuncOp function) {
  Value begin = function.getArguments().drop_back().back(), end = function.getArguments().back();
  SmallVector<int64_t> outer = outerAxes(e);
  int64_t rows = extentOf(outer), lanes = laneKept() ? extentOf(lane) : 1;
  int64_t chunks = chunk ? llvm::divideCeil(lanes, chunk) : 1;
  SmallVector<IndexExpr> at(shape.size());
  e.loop(begin, end, rows * chunks, 1, {}, [&](IndexExpr unit, ValueRange) {
    auto [rowIndex, piece] = e.space.divide(unit, chunks);
    e.spread(rowIndex, shape, outer, at);
    if (!laneKept()) {
      emitRow(e, outputBuffers(function), at, false);
      return SmallVector<Value>();
    }
    Value low = e.indexConstant(0), high = e.indexConstant(lanes);
    if (chunks > 1) {
      low = e.index(e.space.scale(piece, chunk));
      high = arith::MinUIOp::create(e.b, high, arith::AddIOp::create(e.b, low, e.indexConstant(chunk)));
    }
    e.vectorLoop(low, high, lanes, width, [&](IndexExpr position) {
      e.spread(position, shape, lane, at);
      emitRow(e, outputBuffers(function), at, true);
    });
    return SmallVector<Value>();
  });
  return rows * chunks;
}

/// A scatter is a kernel of its own.
FailureOr<KernelInfo> KernelBuilder::buildScatter(OpBuilder &builder, StringRef name, const ScatterForm &form) {
  func::FuncOp function = start(builder, name);
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  bind(e, function);
  ArrayRef<BlockArgument> arguments = function.getArguments();
  Value result = yielded().front();
  // Two cache lines of f32 a row keep neighbouring threads apart.
  ScatterUnits units = scatterUnits(form, result, std::max<int64_t>(64, target.lanes()));
  emitScatter(e, form, result, arguments[inputs.size()], arguments.drop_back().back(), arguments.back(), units);
  if (e.failed()) {
    function->erase();
    return failure();
  }
  return KernelInfo{function, units.extent(), 1, {}};
}

FailureOr<KernelInfo> KernelBuilder::build(OpBuilder &builder, StringRef name) {
  if (std::optional<ScatterForm> form = scatterForm(fusion))
    return buildScatter(builder, name, *form);
  if (!chooseLane(target))
    return failure();
  chooseVectors();
  chooseGathered();
  func::FuncOp function = start(builder, name);
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, target, /*probe=*/false);
  bind(e, function);
  e.laneInReductions = lane.empty() || laneInRow;
  for (Value buffer : outputBuffers(function))
    e.hint(buffer);
  int64_t extent = emitNest(e, function);
  if (e.failed()) {
    function->erase();
    return failure();
  }
  // About 64 Ki elements of traffic a task.
  int64_t work = 0;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      work += type.getNumElements();
  int64_t grain = std::max<int64_t>(1, extent * 65536 / std::max<int64_t>(1, work));
  return KernelInfo{function, extent, std::min(grain, std::max<int64_t>(1, extent)), inPlace};
}

FailureOr<KernelInfo> mpt::emitKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                      ArrayRef<MemRefType> outputs, StringRef name, const KernelTarget &target) {
  return KernelBuilder(fusion, inputs, outputs, target).build(builder, name);
}
