// SPDX-License-Identifier: Apache-2.0
// Schedule: rows with reductions that no element of the row needs. They are gathered in the walk that stores the
// elements; otherwise the elements would be computed twice, for their statistics and to be stored.
#include "Schedules.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/Reductions.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Analysis/SliceAnalysis.h"

using namespace mlir;
using namespace mpt;

namespace {

class GatheredRows : public CpuSchedule {
public:
  GatheredRows() : CpuSchedule("gathered rows") {}

  LogicalResult match(CpuKernelBuilder &kernel) override;
  CpuUnits emit(CpuKernelBuilder &kernel, ElementEmitter &e) override;

private:
  void emitRow(CpuKernelBuilder &kernel, ElementEmitter &e, SmallVector<IndexExpr> at);
  static void restrictInPlace(CpuKernelBuilder &kernel);

  SmallVector<ReduceOp> gathered; ///< where the elements are stored
  SmallVector<ReduceOp> before;   ///< needed by elements, in walks of their own
  bool readsAgain = false;        ///< a row is read once more behind the walk that stores its elements
};

} // namespace

/// The ops that compute the elements that are stored; empty where the kernel stores no elements.
static SetVector<Operation *> neededByElements(CpuKernelBuilder &kernel) {
  SetVector<Operation *> needed;
  BackwardSliceOptions options;
  options.omitBlockArguments = true;
  options.inclusive = true;
  for (Value output : kernel.yielded())
    if (Operation *op = output.getDefiningOp(); op && !kernel.isRowLevel(output))
      (void)getBackwardSlice(op, &needed, options);
  return needed;
}

LogicalResult GatheredRows::match(CpuKernelBuilder &kernel) {
  if (!kernel.findLane())
    return failure();
  SetVector<Operation *> needed = neededByElements(kernel);
  for (auto reduce : kernel.body().getOps<ReduceOp>()) {
    if (cast<RankedTensorType>(reduce.getX().getType()).getShape() != ArrayRef<int64_t>(kernel.shape) ||
        reduce.getAxes() != ArrayRef<int64_t>(kernel.row))
      return refuse(kernel, "expected reductions of whole rows");
    (needed.contains(reduce) ? before : gathered).push_back(reduce);
  }
  // One walk gathers all of them.
  for (ReduceOp reduce : gathered)
    if (llvm::any_of(gathered, [&](ReduceOp other) { return reduce != other && dependsOn(reduce, other); }))
      return refuse(kernel, "expected reductions that do not need each other");
  bool storesElements = llvm::any_of(kernel.yielded(), [&](Value output) { return !kernel.isRowLevel(output); });
  if (!storesElements || gathered.empty())
    return refuse(kernel, "expected elements to store, and reductions that they do not need");
  return success();
}

/// Elements are written while the rest of the row is still read: each may only be read for its own place.
void GatheredRows::restrictInPlace(CpuKernelBuilder &kernel) {
  auto isReadInPlace = [&](OpOperand &use) {
    auto lowering = dyn_cast<LoopLowering>(use.getOwner());
    return isa<ReduceOp>(use.getOwner()) || (lowering && lowering.readsOwnIndex(use.getOperandNumber()));
  };
  llvm::erase_if(kernel.inPlace, [&](std::pair<unsigned, unsigned> pair) {
    BlockArgument input = kernel.body().getArgument(pair.first);
    return shapeOf(input) != ArrayRef<int64_t>(kernel.shape) || !llvm::all_of(input.getUses(), isReadInPlace);
  });
}

void GatheredRows::emitRow(CpuKernelBuilder &kernel, ElementEmitter &e, SmallVector<IndexExpr> at) {
  ValueRange buffers = kernel.outputBuffers(kernel.function);
  SmallVector<IndexExpr> ofRow;
  for (int64_t axis : kernel.kept)
    ofRow.push_back(at[axis]);
  auto visit = [&](ArrayRef<IndexExpr> point) { kernel.storeOutputs(e, buffers, point, false); };
  Alongside walk{gathered, visit, {}, 1};
  if (kernel.laneInRow) {
    SmallVector<int64_t> outer;
    for (int64_t axis : kernel.row)
      if (!llvm::is_contained(kernel.lane, axis))
        outer.push_back(axis);
    walk.walk = e.walk(kernel.shape, outer);
    walk.walk.push_back(kernel.lane);
    // Twice the registers overlap the sums of short elements; long ones have work to overlap, and need the registers.
    bool isShort = llvm::range_size(kernel.body().without_terminator()) <= 16;
    walk.lanes = isShort && 2 * static_cast<int64_t>(kernel.width) <= kernel.extentOf(kernel.lane) ? 2 * kernel.width
                                                                                                   : kernel.width;
  }
  const unsigned once = e.reduced + gathered.size() + before.size();
  e.alongside = &walk;
  for (ReduceOp reduce : before)
    e.element(reduce.getY(), ofRow);
  kernel.storeOutputs(e, buffers, at, true);
  e.element(gathered.front().getY(), ofRow); // where only operations of the rows' values ask for them
  e.alongside = nullptr;
  readsAgain |= e.reduced > once;
}

CpuUnits GatheredRows::emit(CpuKernelBuilder &kernel, ElementEmitter &e) {
  restrictInPlace(kernel);
  CpuUnits units = kernel.emitUnits(e, [&](SmallVector<IndexExpr> at, bool) { emitRow(kernel, e, std::move(at)); });
  // Rows' values whose place is written in two ways, as behind a reshape, are computed for each.
  if (readsAgain)
    kernel.inPlace.clear();
  return units;
}

std::unique_ptr<CpuSchedule> mpt::cpu::makeGatheredRowsSchedule() { return std::make_unique<GatheredRows>(); }
