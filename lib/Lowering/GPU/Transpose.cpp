// SPDX-License-Identifier: Apache-2.0
// Schedule: elementwise kernels with inputs whose contiguous axis is not the outputs'. Tiles of 32 x 32 elements pass
// through shared memory, so that reads and writes are both contiguous.
#include "Schedules.h"
#include "Team.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kTile = 32, kRowsOfThreads = 8;

class Transpose : public GpuSchedule {
public:
  Transpose() : GpuSchedule("transpose") {}

  LogicalResult match(GpuKernelBuilder &kernel) override;
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  LogicalResult findTarget(GpuKernelBuilder &kernel, SmallVectorImpl<int64_t> &strides);
  LogicalResult findSource(GpuKernelBuilder &kernel, int64_t to, int64_t &from, SmallVectorImpl<int64_t> &strides);
  void emitTile(GpuKernelBuilder &kernel, Frame &frame);

  SmallVector<unsigned> crossed; ///< inputs that are contiguous along another axis
  SmallVector<int64_t> targetGroup, sourceGroup, others;
  int64_t width = 0, height = 0, across = 0, down = 0, outer = 0;
};

/// Neighbouring axes that one index walks with stride 1 in `strides`, the fastest last.
SmallVector<int64_t> fastestGroup(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides, int64_t fastest,
                                  ArrayRef<int64_t> without) {
  SmallVector<int64_t> group{fastest};
  for (bool grown = true; grown;) {
    grown = false;
    for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
      if (!llvm::is_contained(group, axis) && !llvm::is_contained(without, axis) && shape[axis] > 1 &&
          strides[axis] == strides[group.front()] * shape[group.front()]) {
        group.insert(group.begin(), axis);
        grown = true;
        break;
      }
  }
  return group;
}

/// The axis of stride 1; -1 without one.
int64_t contiguousAxis(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides) {
  int64_t found = -1;
  for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
    if (shape[axis] > 1 && strides[axis] == 1)
      found = axis;
  return found;
}

} // namespace

/// The strides that all outputs have.
LogicalResult Transpose::findTarget(GpuKernelBuilder &kernel, SmallVectorImpl<int64_t> &strides) {
  int64_t offset;
  for (auto [type, output] : llvm::zip_equal(kernel.outputs, kernel.yielded())) {
    SmallVector<int64_t> own;
    if (type.getShape() != ArrayRef<int64_t>(kernel.shape) || shapeOf(output) != ArrayRef<int64_t>(kernel.shape))
      return refuse(kernel, "expected outputs of one shape");
    if (failed(type.getStridesAndOffset(own, offset)) || (!strides.empty() && ArrayRef(own) != ArrayRef(strides)))
      return refuse(kernel, "expected outputs of one layout");
    strides.assign(own.begin(), own.end());
  }
  return success();
}

/// The inputs whose contiguous axis is one and the same other than `to`, which is `from`, and the strides of the last.
LogicalResult Transpose::findSource(GpuKernelBuilder &kernel, int64_t to, int64_t &from,
                                    SmallVectorImpl<int64_t> &strides) {
  int64_t offset;
  for (auto [i, type] : llvm::enumerate(kernel.inputs)) {
    SmallVector<int64_t> own;
    if (type.getShape() != ArrayRef<int64_t>(kernel.shape) || failed(type.getStridesAndOffset(own, offset)) ||
        !kernel.feedsAtOwnIndex(kernel.body().getArgument(i), /*reductionsToo=*/false))
      continue;
    int64_t axis = contiguousAxis(kernel.shape, own);
    if (axis < 0 || axis == to || (from >= 0 && axis != from))
      continue;
    from = axis;
    strides.assign(own.begin(), own.end());
    crossed.push_back(i);
  }
  return success(from >= 0);
}

LogicalResult Transpose::match(GpuKernelBuilder &kernel) {
  if (!kernel.reductions.empty())
    return refuse(kernel, "expected no reduction");
  if (failed(kernel.findLane()))
    return failure();
  if (kernel.outputs.empty() || kernel.hasRowOutputs())
    return refuse(kernel, "expected outputs of the iteration space alone");
  SmallVector<int64_t> strides, source;
  if (failed(findTarget(kernel, strides)))
    return failure();
  int64_t to = contiguousAxis(kernel.shape, strides), from = -1;
  if (failed(findSource(kernel, to, from, source)) || to < 0)
    return refuse(kernel, "expected an input that is contiguous along another axis than the outputs");
  targetGroup = fastestGroup(kernel.shape, strides, to, {from});
  sourceGroup = fastestGroup(kernel.shape, source, from, targetGroup);
  width = kernel.extentOf(targetGroup);
  height = kernel.extentOf(sourceGroup);
  if (width < 8 || height < 8)
    return refuse(kernel, "expected at least 8 x 8 elements a tile, got " + Twine(height) + " x " + Twine(width));
  return success();
}

void Transpose::emitTile(GpuKernelBuilder &kernel, Frame &frame) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  IndexExpr block = e.variable(frame.block, across * down * outer);
  std::pair<IndexExpr, IndexExpr> byColumn = e.space.divide(block, across);
  std::pair<IndexExpr, IndexExpr> byLine = e.space.divide(byColumn.first, down);
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(byLine.first, kernel.shape, others, at);
  Value x = arith::RemUIOp::create(b, frame.thread, e.indexConstant(kTile));
  Value y = arith::DivUIOp::create(b, frame.thread, e.indexConstant(kTile));
  SmallVector<Value> memory;
  for (unsigned i : crossed)
    // One more column than there are elements: a column's elements lie in different banks.
    memory.push_back(
        sharedBuffer(e, {kTile, kTile + 1}, computeType(kernel.inputs[i].getElementType()), frame.sharedBytes));
  // Threads side by side along the one group, and `along` of them below each other along the other.
  struct Spot {
    Value wide, high, inside; // within the tile
  };
  auto place = [&](int64_t k, bool reading) {
    Value low = arith::AddIOp::create(b, y, e.indexConstant(k * kRowsOfThreads));
    Spot spot{reading ? low : x, reading ? x : low, Value()};
    auto global = [&](Value local, const IndexExpr &tileNumber, int64_t extent, ArrayRef<int64_t> group) {
      Value index = arith::AddIOp::create(b, e.index(e.space.scale(tileNumber, kTile)), local);
      if (extent % kTile != 0) {
        Value ok = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, e.indexConstant(extent));
        index = arith::SelectOp::create(b, ok, index, e.indexConstant(0));
        spot.inside = spot.inside ? Value(arith::AndIOp::create(b, spot.inside, ok)) : ok;
      }
      e.spread(e.variable(index, extent), kernel.shape, group, at);
    };
    global(spot.wide, byColumn.second, width, targetGroup);
    global(spot.high, byLine.second, height, sourceGroup);
    return spot;
  };
  for (int64_t k = 0; k < kTile / kRowsOfThreads; ++k) {
    Spot spot = place(k, /*reading=*/true);
    for (auto [i, buffer] : llvm::zip_equal(crossed, memory)) {
      Value value = e.element(kernel.body().getArgument(i), at);
      if (value.getType().isInteger(1))
        value = arith::ExtUIOp::create(b, b.getI8Type(), value);
      memref::StoreOp::create(b, value, buffer, ValueRange{spot.wide, spot.high});
    }
  }
  gpu::BarrierOp::create(b);
  for (int64_t k = 0; k < kTile / kRowsOfThreads; ++k) {
    Spot spot = place(k, /*reading=*/false);
    for (auto [i, buffer] : llvm::zip_equal(crossed, memory)) {
      Value value = memref::LoadOp::create(b, buffer, ValueRange{spot.wide, spot.high});
      if (kernel.inputs[i].getElementType().isInteger(1))
        value = arith::TruncIOp::create(b, b.getI1Type(), value);
      e.define(kernel.body().getArgument(i), at, value);
    }
    kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/false, spot.inside);
  }
}

void Transpose::emit(GpuKernelBuilder &kernel) {
  for (int64_t axis = 0, rank = kernel.shape.size(); axis < rank; ++axis)
    if (!llvm::is_contained(targetGroup, axis) && !llvm::is_contained(sourceGroup, axis))
      others.push_back(axis);
  across = ceilDiv(width, kTile);
  down = ceilDiv(height, kTile);
  outer = kernel.extentOf(others);
  kernel.launch("transpose", {across * down * outer, 1, 1}, kTile * kRowsOfThreads,
                [&](Frame &frame) { emitTile(kernel, frame); });
}

std::unique_ptr<GpuSchedule> mpt::makeTransposeSchedule() { return std::make_unique<Transpose>(); }
