// SPDX-License-Identifier: Apache-2.0
// Schedules of data movement: transposition through shared memory, scattering, copies and zeros.
#include "KernelBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mpt;

/// Neighbouring axes that one index walks with stride 1 in `strides`, the fastest last.
static SmallVector<int64_t> fastestGroup(ArrayRef<int64_t> shape, ArrayRef<int64_t> strides, int64_t fastest,
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

/// Elementwise kernels with inputs whose contiguous axis is not the outputs': tiles of 32 x 32 elements pass through
/// shared memory, so that reads and writes are both contiguous. False where no input asks for it.
bool GpuKernelBuilder::transposes() {
  constexpr int64_t tile = 32, rowsOfThreads = 8;
  if (outputs.empty() || hasRowOutputs())
    return false;
  SmallVector<int64_t> order, strides;
  int64_t offset, from = -1;
  for (auto [type, output] : llvm::zip_equal(outputs, yielded())) {
    SmallVector<int64_t> own;
    if (type.getShape() != ArrayRef<int64_t>(shape) || shapeOf(output) != ArrayRef<int64_t>(shape) ||
        mlir::failed(type.getStridesAndOffset(own, offset)) || (!strides.empty() && own != strides))
      return false;
    strides = own;
  }
  auto fastest = [&](ArrayRef<int64_t> strides) {
    int64_t found = -1;
    for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
      if (shape[axis] > 1 && strides[axis] == 1)
        found = axis;
    return found;
  };
  int64_t to = fastest(strides);
  SmallVector<int64_t> source;
  SmallVector<unsigned> crossed;
  for (auto [i, type] : llvm::enumerate(inputs)) {
    SmallVector<int64_t> own;
    if (type.getShape() != ArrayRef<int64_t>(shape) || mlir::failed(type.getStridesAndOffset(own, offset)) ||
        !feedsAtOwnIndex(body().getArgument(i), /*reductionsToo=*/false))
      continue;
    int64_t axis = fastest(own);
    if (axis < 0 || axis == to || (from >= 0 && axis != from))
      continue;
    from = axis;
    source = own;
    crossed.push_back(i);
  }
  if (to < 0 || from < 0)
    return false;
  SmallVector<int64_t> targetGroup = fastestGroup(shape, strides, to, {from});
  SmallVector<int64_t> sourceGroup = fastestGroup(shape, source, from, targetGroup), others;
  int64_t width = extentOf(targetGroup), height = extentOf(sourceGroup);
  if (width < 8 || height < 8)
    return false;
  for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
    if (!llvm::is_contained(targetGroup, axis) && !llvm::is_contained(sourceGroup, axis))
      others.push_back(axis);
  int64_t across = ceilDiv(width, tile), down = ceilDiv(height, tile), outer = extentOf(others);
  launch("transpose", {across * down * outer, 1, 1}, tile * rowsOfThreads, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    IndexExpr block = e.variable(frame.block, across * down * outer);
    std::pair<IndexExpr, IndexExpr> byColumn = e.space.divide(block, across);
    std::pair<IndexExpr, IndexExpr> byLine = e.space.divide(byColumn.first, down);
    SmallVector<IndexExpr> at(shape.size());
    e.spread(byLine.first, shape, others, at);
    Value x = arith::RemUIOp::create(b, frame.thread, e.indexConstant(tile));
    Value y = arith::DivUIOp::create(b, frame.thread, e.indexConstant(tile));
    SmallVector<Value> memory;
    for (unsigned i : crossed)
      // One more column than there are elements: a column's elements lie in different banks.
      memory.push_back(sharedBuffer(e, {tile, tile + 1}, computeType(inputs[i].getElementType()), frame.sharedBytes));
    // Threads side by side along the one group, and `along` of them below each other along the other.
    struct Spot {
      Value wide, high, inside; // within the tile
    };
    auto place = [&](int64_t k, bool reading) {
      Value low = arith::AddIOp::create(b, y, e.indexConstant(k * rowsOfThreads));
      Spot spot{reading ? low : x, reading ? x : low, Value()};
      auto global = [&](Value local, const IndexExpr &tileNumber, int64_t extent, ArrayRef<int64_t> group) {
        Value index = arith::AddIOp::create(b, e.index(e.space.scale(tileNumber, tile)), local);
        if (extent % tile != 0) {
          Value ok = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, index, e.indexConstant(extent));
          index = arith::SelectOp::create(b, ok, index, e.indexConstant(0));
          spot.inside = spot.inside ? Value(arith::AndIOp::create(b, spot.inside, ok)) : ok;
        }
        e.spread(e.variable(index, extent), shape, group, at);
      };
      global(spot.wide, byColumn.second, width, targetGroup);
      global(spot.high, byLine.second, height, sourceGroup);
      return spot;
    };
    for (int64_t k = 0; k < tile / rowsOfThreads; ++k) {
      Spot spot = place(k, /*reading=*/true);
      for (auto [i, buffer] : llvm::zip_equal(crossed, memory)) {
        Value value = e.element(body().getArgument(i), at);
        if (value.getType().isInteger(1))
          value = arith::ExtUIOp::create(b, b.getI8Type(), value);
        memref::StoreOp::create(b, value, buffer, ValueRange{spot.wide, spot.high});
      }
    }
    gpu::BarrierOp::create(b);
    for (int64_t k = 0; k < tile / rowsOfThreads; ++k) {
      Spot spot = place(k, /*reading=*/false);
      for (auto [i, buffer] : llvm::zip_equal(crossed, memory)) {
        Value value = memref::LoadOp::create(b, buffer, ValueRange{spot.wide, spot.high});
        if (inputs[i].getElementType().isInteger(1))
          value = arith::TruncIOp::create(b, b.getI1Type(), value);
        e.define(body().getArgument(i), at, value);
      }
      storeOutputs(e, outputBuffers(frame.function), at, /*rowLevel=*/false, spot.inside);
    }
  });
  return true;
}

/// One thread a position of the last dimension that updates and result share; it walks the updates in order.
void GpuKernelBuilder::scatter(const ScatterForm &form) {
  Value result = yielded().front();
  ScatterUnits units = scatterUnits(form, result, 1);
  int64_t block = 64;
  launch("scatter", {ceilDiv(units.extent(), block), 1, 1}, block, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    Value first = arith::MulIOp::create(e.b, frame.block, e.indexConstant(block));
    Value number = arith::AddIOp::create(e.b, first, frame.thread);
    Value end = arith::AddIOp::create(e.b, number, e.indexConstant(1));
    end = arith::MinUIOp::create(e.b, end, e.indexConstant(units.extent()));
    emitScatter(e, form, result, outputBuffers(frame.function).front(), number, end, units);
  });
}

/// A fusion without operands that `fill` gives a body.
static OwningOpRef<Operation *> detached(OpBuilder &builder, Location loc, ValueRange operands, RankedTensorType type,
                                         function_ref<Value(OpBuilder &, Block &)> fill) {
  OpBuilder inner(builder.getContext());
  OwningOpRef<Operation *> fusion(FusionOp::create(inner, loc, TypeRange{type}, operands));
  Block &block = fusion->getRegion(0).emplaceBlock();
  for (Value operand : operands)
    block.addArgument(operand.getType(), loc);
  inner.setInsertionPointToEnd(&block);
  YieldOp::create(inner, loc, fill(inner, block));
  return fusion;
}

FailureOr<GpuKernelInfo> mpt::emitGpuCopy(OpBuilder &builder, Location loc, MemRefType from, MemRefType to,
                                          StringRef name, const GpuTarget &target, ArrayRef<int64_t> alignments) {
  auto type = RankedTensorType::get(from.getShape(), from.getElementType());
  OpBuilder inner(builder.getContext());
  // The operand only gives the fusion a type.
  OwningOpRef<Operation *> operand(IotaOp::create(inner, loc, type, 0));
  OwningOpRef<Operation *> fusion = detached(builder, loc, operand->getResults(), type,
                                             [](OpBuilder &, Block &block) { return block.getArgument(0); });
  FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, cast<FusionOp>(*fusion), from, to, name, target, alignments);
  fusion = nullptr;
  return info;
}

FailureOr<GpuKernelInfo> mpt::emitGpuZero(OpBuilder &builder, Location loc, MemRefType to, StringRef name,
                                          const GpuTarget &target) {
  auto type = RankedTensorType::get(to.getShape(), to.getElementType());
  OwningOpRef<Operation *> fusion = detached(builder, loc, {}, type, [&](OpBuilder &inner, Block &) -> Value {
    Attribute zero = isa<FloatType>(to.getElementType()) ? Attribute(inner.getFloatAttr(to.getElementType(), 0))
                                                         : Attribute(inner.getIntegerAttr(to.getElementType(), 0));
    return ConstantOp::create(inner, loc, type, cast<ElementsAttr>(DenseElementsAttr::get(type, zero)));
  });
  return emitGpuKernel(builder, cast<FusionOp>(*fusion), {}, to, name, target);
}
