// SPDX-License-Identifier: Apache-2.0
// Units of work and vectors.
#include "mpt/Lowering/CPU/KernelBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

bool CpuKernelBuilder::findLane() {
  if (hasLane || failed)
    return !failed;
  failed = !chooseLane(target);
  hasLane = !failed;
  if (hasLane)
    chooseVectors();
  return hasLane;
}

void CpuKernelBuilder::chooseVectors() {
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

CpuUnits CpuKernelBuilder::emitUnits(ElementEmitter &e, RowEmitter emitRow) {
  e.laneInReductions = lane.empty() || laneInRow;
  for (Value buffer : outputBuffers(function))
    e.hint(buffer);
  SmallVector<int64_t> outer = outerAxes(e);
  int64_t rows = extentOf(outer), lanes = laneKept() ? extentOf(lane) : 1;
  int64_t chunks = chunk ? llvm::divideCeil(lanes, chunk) : 1;
  SmallVector<IndexExpr> at(shape.size());
  e.loop(begin(), end(), rows * chunks, 1, {}, [&](const IndexExpr &unit, ValueRange) {
    auto [rowIndex, piece] = e.space.divide(unit, chunks);
    e.spread(rowIndex, shape, outer, at);
    if (!laneKept()) {
      emitRow(at, false);
      return SmallVector<Value>();
    }
    Value low = e.indexConstant(0), high = e.indexConstant(lanes);
    if (chunks > 1) {
      low = e.index(e.space.scale(piece, chunk));
      high = arith::MinUIOp::create(e.b, high, arith::AddIOp::create(e.b, low, e.indexConstant(chunk)));
    }
    e.vectorLoop(low, high, lanes, width, [&](const IndexExpr &position) {
      e.spread(position, shape, lane, at);
      emitRow(at, true);
    });
    return SmallVector<Value>();
  });
  int64_t extent = rows * chunks;
  // About 64 Ki elements of traffic a task.
  int64_t work = 0;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      work += type.getNumElements();
  int64_t grain = std::max<int64_t>(1, extent * 65536 / std::max<int64_t>(1, work));
  return {extent, std::min(grain, std::max<int64_t>(1, extent))};
}
