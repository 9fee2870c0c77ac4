// SPDX-License-Identifier: Apache-2.0
// Schedule: elementwise kernels with inputs whose contiguous axis is not the outputs'. Tiles pass through shared
// memory, so that reads and writes are both contiguous, in vectors where extents are multiples of them. Where taps of a
// filter lie inside of its channels on one side, and outside of them on the other, tiles have all taps.
#include "Schedules.h"
#include "Team.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kVector = 4, kMostThreads = 256;
constexpr int64_t kPieces = 4; ///< that a thread moves of a tile
constexpr int64_t kLongest = 256;
constexpr int64_t kMostTaps = 32, kSlabThreads = 128;

class Transpose : public GpuSchedule {
public:
  Transpose() : GpuSchedule("transpose") {}

  LogicalResult match(GpuKernelBuilder &kernel) override;
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  LogicalResult findTarget(GpuKernelBuilder &kernel, SmallVectorImpl<int64_t> &strides);
  LogicalResult findSource(GpuKernelBuilder &kernel, int64_t to, int64_t &from, SmallVectorImpl<int64_t> &strides);
  void findSlab(GpuKernelBuilder &kernel, ArrayRef<int64_t> target);
  void emitSlab(GpuKernelBuilder &kernel, Frame &frame) const;
  void chooseTile(GpuKernelBuilder &kernel);
  void emitTile(GpuKernelBuilder &kernel, Frame &frame);

  /// One input's tile in shared memory, [tileWidth][tileHeight and padding], elements as they lie in memory.
  struct Tile {
    unsigned input;
    Type element;
    Value memory;
  };
  /// A thread's piece of a tile, and whether it exists.
  struct Spot {
    Value wide, high, inside;
  };
  Tile makeTile(GpuKernelBuilder &kernel, Frame &frame, unsigned input) const;
  void leave(ElementEmitter &e, const Tile &tile, const Spot &spot, Value value) const;
  Value fetch(ElementEmitter &e, const Tile &tile, const Spot &spot) const;

  SmallVector<unsigned> crossed; ///< inputs that are contiguous along another axis
  SmallVector<int64_t> targetGroup, sourceGroup, others;
  int64_t width = 0, height = 0, across = 0, down = 0, outer = 0;
  int64_t tileWidth = 0, tileHeight = 0, threads = 0;
  int64_t vector = 1; ///< elements that a thread reads, and writes, side by side
  /// Of a slab: the short group, and the long one that it lies inside of on one side and outside of on the other.
  SmallVector<int64_t> taps, along;
  bool tapsInside = false; ///< of the long group in the inputs, else in the outputs
  int64_t slab = 0;        ///< elements of the long group in a block's slab; 0 without one
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
  findSlab(kernel, strides);
  if (!slab && (width < 8 || height < 8))
    return refuse(kernel, "expected at least 8 x 8 elements a tile, got " + Twine(height) + " x " + Twine(width));
  return success();
}

//===----------------------------------------------------------------------===//
// Slabs
//===----------------------------------------------------------------------===//

/// The axes from the last of `group` on outwards that continue each other in `strides`, the fastest with stride `step`.
static SmallVector<int64_t> continuing(ArrayRef<int64_t> group, ArrayRef<int64_t> shape, ArrayRef<int64_t> strides,
                                       int64_t step) {
  SmallVector<int64_t> axes;
  for (int64_t axis : llvm::reverse(group)) {
    if (strides[axis] != step)
      break;
    axes.insert(axes.begin(), axis);
    step *= shape[axis];
  }
  return axes;
}

/// Sets `slab` where one side has few taps inside of a long group, which continues them, and the other side that group
/// innermost: whole pieces of both are contiguous then. The taps' number is odd, so that banks of shared memory differ.
void Transpose::findSlab(GpuKernelBuilder &kernel, ArrayRef<int64_t> target) {
  tapsInside = height < width;
  taps = tapsInside ? sourceGroup : targetGroup;
  along = tapsInside ? targetGroup : sourceGroup;
  const int64_t count = kernel.extentOf(taps);
  if (count > kMostTaps || count % 2 == 0)
    return;
  // Keeps of `along` the axes that continue on all buffers of both sides.
  auto narrow = [&](ArrayRef<int64_t> strides, bool inside) {
    if (inside && continuing(taps, kernel.shape, strides, 1) != taps)
      along.clear();
    along = continuing(along, kernel.shape, strides, inside ? count : 1);
  };
  int64_t bytes = 0;
  for (unsigned i : crossed) {
    SmallVector<int64_t> own;
    int64_t offset;
    MemRefType type = kernel.inputs[i];
    if (failed(type.getStridesAndOffset(own, offset)) || !isa<FloatType>(type.getElementType()))
      return;
    narrow(own, tapsInside);
    bytes += bytesOf(type.getElementType());
  }
  narrow(target, !tapsInside);
  if (along.empty() || kernel.extentOf(along) % kVector != 0)
    return;
  // The longest piece that divides the group and fits.
  int64_t pieces = kernel.extentOf(along) / kVector;
  threads = std::min(kSlabThreads, kernel.device.sharedBytes / (count * kVector * bytes));
  while (threads > 0 && pieces % threads != 0)
    --threads;
  slab = threads >= kernel.device.warpThreads ? threads * kVector : 0;
}

/// A thread moves a vector a tap: neighbours on the side where taps lie inside, and elements of one tap on the other.
void Transpose::emitSlab(GpuKernelBuilder &kernel, Frame &frame) const {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  const int64_t count = kernel.extentOf(taps), pieces = kernel.extentOf(along) / slab;
  std::pair<IndexExpr, IndexExpr> block = e.space.divide(e.variable(frame.block, outer * pieces), pieces);
  const IndexExpr &piece = block.second;
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(block.first, kernel.shape, others, at);
  Value first = arith::MulIOp::create(b, frame.thread, e.indexConstant(kVector));
  IndexExpr own = e.variable(first, slab, kVector);
  Value column = arith::MulIOp::create(b, first, e.indexConstant(count));
  SmallVector<int64_t> inside(along);
  llvm::append_range(inside, taps);
  auto place = [&](int64_t k, bool neighbours) {
    if (neighbours) {
      IndexExpr position = e.space.add(e.space.scale(piece, slab * count), IndexExpr(k * slab));
      e.spread(e.space.add(position, own), kernel.shape, inside, at);
      return;
    }
    e.spread(e.space.add(e.space.scale(piece, slab), own), kernel.shape, along, at);
    e.spread(IndexExpr(k), kernel.shape, taps, at);
  };
  auto spot = [&](int64_t number, Value base) -> Value {
    return arith::AddIOp::create(b, base, e.indexConstant(number));
  };
  auto alignment = [&](Type element) {
    return llvm::Align(std::min(kernel.device.accessBytes, kVector * bytesOf(element)));
  };
  auto leave = [&](Value memory, Type element, int64_t k, Value value) {
    value = e.narrow(value, element);
    if (tapsInside)
      return void(
          vector::StoreOp::create(b, value, memory, ValueRange{spot(k * slab, first)}, false, alignment(element)));
    for (int64_t i = 0; i < kVector; ++i)
      memref::StoreOp::create(b, vector::ExtractOp::create(b, value, i), memory, spot(i * count + k, column));
  };
  auto fetch = [&](Value memory, Type element, int64_t k) -> Value {
    auto type = VectorType::get(kVector, element);
    if (!tapsInside)
      return vector::LoadOp::create(b, type, memory, ValueRange{spot(k * slab, first)}, false, alignment(element));
    SmallVector<Value> lanes;
    for (int64_t i = 0; i < kVector; ++i)
      lanes.push_back(memref::LoadOp::create(b, memory, spot(i * count + k, column)));
    return vector::FromElementsOp::create(b, type, lanes);
  };
  SmallVector<Tile> tiles;
  for (unsigned i : crossed) {
    Type element = kernel.inputs[i].getElementType();
    tiles.push_back({i, element, sharedBuffer(e, {slab * count}, element, frame.sharedBytes)});
  }
  for (int64_t k = 0; k < count; ++k) {
    place(k, /*neighbours=*/tapsInside);
    for (const Tile &tile : tiles)
      leave(tile.memory, tile.element, k, e.element(kernel.body().getArgument(tile.input), at));
  }
  gpu::BarrierOp::create(b);
  for (int64_t k = 0; k < count; ++k) {
    place(k, /*neighbours=*/!tapsInside);
    for (const Tile &tile : tiles)
      e.define(kernel.body().getArgument(tile.input), at, e.widen(fetch(tile.memory, tile.element, k)));
    kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/false);
  }
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

/// Tiles of kPieces pieces a thread, square where the extents are long enough.
void Transpose::chooseTile(GpuKernelBuilder &kernel) {
  int64_t wide = kernel.shape[targetGroup.back()], high = kernel.shape[sourceGroup.back()];
  for (vector = kVector; wide % vector != 0 || high % vector != 0;)
    vector /= 2;
  const int64_t most = kPieces * kMostThreads * vector;
  auto side = [](int64_t extent, int64_t longest) {
    return std::min(longest, static_cast<int64_t>(llvm::PowerOf2Ceil(static_cast<uint64_t>(extent))));
  };
  const int64_t square = vector > 1 ? 64 : 32;
  tileWidth = side(width, square);
  tileHeight = side(height, std::min(kLongest, most / tileWidth));
  if (tileHeight < square)
    tileWidth = side(width, std::min(kLongest, most / tileHeight));
  // Pieces for a whole warp at least.
  tileHeight = std::max(tileHeight, kernel.device.warpThreads * vector / tileWidth);
  threads = std::min(kMostThreads, tileWidth * tileHeight / vector);
  across = ceilDiv(width, tileWidth);
  down = ceilDiv(height, tileHeight);
}

Transpose::Tile Transpose::makeTile(GpuKernelBuilder &kernel, Frame &frame, unsigned input) const {
  Type element = kernel.inputs[input].getElementType();
  if (!isa<FloatType>(element))
    element = computeType(element);
  // Padding of one word of a bank: neighbours along the width lie in different banks.
  int64_t padding = std::max<int64_t>(1, 4 / bytesOf(element));
  return {input, element, sharedBuffer(frame.e, {tileWidth, tileHeight + padding}, element, frame.sharedBytes)};
}

void Transpose::leave(ElementEmitter &e, const Tile &tile, const Spot &spot, Value value) const {
  ImplicitLocOpBuilder &b = e.b;
  value = e.splat(e.narrow(value, tile.element), static_cast<unsigned>(vector));
  if (tile.element.isInteger(1))
    value = arith::ExtUIOp::create(b, e.typeLike(b.getI8Type(), value), value);
  if (vector == 1)
    memref::StoreOp::create(b, value, tile.memory, ValueRange{spot.wide, spot.high});
  else
    vector::StoreOp::create(
        b, value, tile.memory, ValueRange{spot.wide, spot.high}, false,
        llvm::Align(std::max<int64_t>(bytesOf(tile.element), std::min<int64_t>(4, vector * bytesOf(tile.element)))));
}

Value Transpose::fetch(ElementEmitter &e, const Tile &tile, const Spot &spot) const {
  ImplicitLocOpBuilder &b = e.b;
  SmallVector<Value> lanes;
  for (int64_t i = 0; i < vector; ++i) {
    Value wide = i ? Value(arith::AddIOp::create(b, spot.wide, e.indexConstant(i))) : spot.wide;
    lanes.push_back(memref::LoadOp::create(b, tile.memory, ValueRange{wide, spot.high}));
  }
  Value value = lanes.front();
  if (vector > 1)
    value = vector::FromElementsOp::create(b, VectorType::get(vector, value.getType()), lanes);
  if (tile.element.isInteger(1))
    value = arith::TruncIOp::create(b, e.typeLike(tile.element, value), value);
  return e.widen(value);
}

void Transpose::emitTile(GpuKernelBuilder &kernel, Frame &frame) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  IndexExpr block = e.variable(frame.block, across * down * outer);
  std::pair<IndexExpr, IndexExpr> byColumn = e.space.divide(block, across);
  std::pair<IndexExpr, IndexExpr> byLine = e.space.divide(byColumn.first, down);
  SmallVector<IndexExpr> at(kernel.shape.size());
  e.spread(byLine.first, kernel.shape, others, at);
  SmallVector<Tile> tiles;
  for (unsigned i : crossed)
    tiles.push_back(makeTile(kernel, frame, i));
  // Threads side by side along the one group, and rows of them below each other along the other.
  auto rowsOf = [&](bool reading) { return threads * vector / (reading ? tileHeight : tileWidth); };
  auto place = [&](int64_t k, bool reading) {
    Value units = e.indexConstant((reading ? tileHeight : tileWidth) / vector);
    Value x = arith::RemUIOp::create(b, frame.thread, units), y = arith::DivUIOp::create(b, frame.thread, units);
    if (vector > 1)
      x = arith::MulIOp::create(b, x, e.indexConstant(vector));
    Value low = arith::AddIOp::create(b, y, e.indexConstant(k * rowsOf(reading)));
    Spot spot{reading ? low : x, reading ? x : low, Value()};
    auto global = [&](Value local, const IndexExpr &first, int64_t extent, int64_t tile, ArrayRef<int64_t> group,
                      bool isLane) {
      Value index = arith::AddIOp::create(b, e.index(e.space.scale(first, tile)), local);
      if (extent % tile != 0) {
        Value ok = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, e.indexConstant(extent));
        index = arith::SelectOp::create(b, ok, index, e.indexConstant(0));
        spot.inside = spot.inside ? Value(arith::AndIOp::create(b, spot.inside, ok)) : ok;
      }
      e.spread(e.variable(index, extent, isLane ? vector : 1), kernel.shape, group, at);
    };
    global(spot.wide, byColumn.second, width, tileWidth, targetGroup, !reading);
    global(spot.high, byLine.second, height, tileHeight, sourceGroup, reading);
    return spot;
  };
  for (int64_t k = 0; k < tileWidth / rowsOf(/*reading=*/true); ++k) {
    Spot spot = place(k, /*reading=*/true);
    for (const Tile &tile : tiles)
      leave(e, tile, spot, e.element(kernel.body().getArgument(tile.input), at));
  }
  gpu::BarrierOp::create(b);
  for (int64_t k = 0; k < tileHeight / rowsOf(/*reading=*/false); ++k) {
    Spot spot = place(k, /*reading=*/false);
    for (const Tile &tile : tiles)
      e.define(kernel.body().getArgument(tile.input), at, fetch(e, tile, spot));
    kernel.storeOutputs(e, kernel.outputBuffers(frame.function), at, /*rowLevel=*/false, spot.inside);
  }
}

void Transpose::emit(GpuKernelBuilder &kernel) {
  for (int64_t axis = 0, rank = kernel.shape.size(); axis < rank; ++axis)
    if (slab ? !llvm::is_contained(along, axis) && !llvm::is_contained(taps, axis)
             : !llvm::is_contained(targetGroup, axis) && !llvm::is_contained(sourceGroup, axis))
      others.push_back(axis);
  outer = kernel.extentOf(others);
  if (slab)
    return kernel.launch("transpose", {outer * (kernel.extentOf(along) / slab), 1, 1}, threads,
                         [&](Frame &frame) { emitSlab(kernel, frame); });
  chooseTile(kernel);
  kernel.launch("transpose", {across * down * outer, 1, 1}, threads, [&](Frame &frame) { emitTile(kernel, frame); });
}

std::unique_ptr<GpuSchedule> mpt::makeTransposeSchedule() { return std::make_unique<Transpose>(); }
