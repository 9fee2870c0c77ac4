// SPDX-License-Identifier: Apache-2.0
// Which schedule a fusion gets, and the elementwise one.
#include "KernelBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mpt;

GpuKernelBuilder::GpuKernelBuilder(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                   ArrayRef<MemRefType> outputs, StringRef name, const GpuTarget &target,
                                   ArrayRef<int64_t> alignments)
    : KernelNest(fusion, inputs, outputs), builder(builder), name(name), target(target), alignments(alignments) {
  loops.vectorBits = 64;
  loops.fma = true;
  for (auto reduce : body().getOps<ReduceOp>())
    reductions.push_back(reduce);
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

void GpuKernelBuilder::launch(StringRef schedule, std::array<int64_t, 3> grid, int64_t block, Fill fill) {
  std::string symbol = name.str();
  if (!info.launches.empty())
    symbol += "_" + std::to_string(info.launches.size());
  SmallVector<Type> more;
  if (info.scratchBytes)
    more.push_back(MemRefType::get({info.scratchBytes}, builder.getI8Type()));
  func::FuncOp function = makeFunction(builder, symbol, more);
  info.launches.push_back({function, grid, {block, 1, 1}, 0});
  ImplicitLocOpBuilder b(fusion.getLoc(), fusion.getContext());
  b.setInsertionPointToStart(&function.getBody().front());
  ElementEmitter e(b, loops, /*probe=*/false);
  bind(e, function);
  for (Value buffer : outputBuffers(function))
    e.hint(buffer);
  for (unsigned i = 0, n = function.getNumArguments(); i < n; ++i)
    e.alignments[function.getArgument(i)] = i < alignments.size() ? alignments[i] : target.accessBytes;
  e.laneInReductions = false;
  Frame frame{e, function, gpu::ThreadIdOp::create(b, gpu::Dimension::x), gpu::BlockIdOp::create(b, gpu::Dimension::x)};
  fill(frame);
  failed |= e.failed();
  info.launches.back().sharedBytes = frame.sharedBytes;
  setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr(schedule));
  setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr(grid));
  setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({block, 1, 1}));
  if (info.launches.size() == 1)
    setAttr<MPTDialect::InPlaceAttrHelper>(function, b.getDenseI64ArrayAttr({}));
  setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(frame.sharedBytes));
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

SmallVector<int64_t> GpuKernelBuilder::stridesOf(ArrayRef<int64_t> shape) {
  int64_t offset;
  SmallVector<int64_t> strides;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      if (type.getShape() == shape && succeeded(type.getStridesAndOffset(strides, offset)))
        return strides;
  return computeSuffixProduct(shape);
}

int64_t GpuKernelBuilder::fastestAxis(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides = stridesOf(shape);
  int64_t fastest = -1;
  for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
    if (shape[axis] > 1 && (fastest < 0 || strides[axis] <= strides[fastest]))
      fastest = axis;
  return fastest;
}

/// Element sizes of the accesses that are contiguous along the lane.
SmallVector<int64_t> GpuKernelBuilder::contiguousBytes() {
  SmallVector<int64_t> bytes;
  for (const MemoryAccess &access : accesses)
    if (!lane.empty() && access.address.coefficient(variables[lane.back()]) == 1)
      bytes.push_back(access.bytes);
  return bytes;
}

unsigned GpuKernelBuilder::vectorWidth(int64_t extent, ArrayRef<int64_t> elementBytes) const {
  int64_t narrowest = target.accessBytes;
  for (int64_t bytes : elementBytes)
    narrowest = std::min(narrowest, bytes);
  // Long fusions keep many values at a time: narrower vectors keep them in registers.
  int64_t limit = fusion->getRegion(0).front().getOperations().size() > 64 ? 4 : 8;
  int64_t width = std::clamp<int64_t>(target.accessBytes / narrowest, 1, limit);
  while (extent % width != 0)
    width /= 2;
  return width;
}

//===----------------------------------------------------------------------===//
// In place
//===----------------------------------------------------------------------===//

/// True when every use of `value` reads it at the index of the element that is being made, up to the fusion's outputs
/// (or, with `reductionsToo`, to sums that are complete before anything is written).
bool GpuKernelBuilder::feedsAtOwnIndex(Value value, bool reductionsToo, unsigned depth) {
  if (depth > 64)
    return false;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (isa<YieldOp>(user)) {
      if (isRowLevel(value))
        return false;
      continue;
    }
    if (isa<ReduceOp>(user)) {
      if (!reductionsToo)
        return false;
      continue;
    }
    auto lowering = dyn_cast<LoopLowering>(user);
    if (!lowering || !lowering.readsOwnIndex(use.getOperandNumber()))
      return false;
    for (Value result : user->getResults())
      if (shapeOf(result) != shapeOf(value) || !feedsAtOwnIndex(result, reductionsToo, depth + 1))
        return false;
  }
  return true;
}

void GpuKernelBuilder::markInPlace(bool reductionsToo) {
  SmallVector<int64_t> pairs;
  for (auto [i, argument] : llvm::enumerate(body().getArguments()))
    for (auto [o, output] : llvm::enumerate(yielded())) {
      auto alignmentOf = [&](size_t n) { return n < alignments.size() ? alignments[n] : target.accessBytes; };
      if (inputs[i] != outputs[o] || isRowLevel(output) || shapeOf(argument) != shapeOf(output) ||
          alignmentOf(i) < alignmentOf(inputs.size() + o) || !feedsAtOwnIndex(argument, reductionsToo))
        continue;
      pairs.push_back(i);
      pairs.push_back(inputs.size() + o);
    }
  setAttr<MPTDialect::InPlaceAttrHelper>(info.launches.front().function, builder.getDenseI64ArrayAttr(pairs));
}

//===----------------------------------------------------------------------===//
// Schedules
//===----------------------------------------------------------------------===//

/// One thread a vector of points (or a point); loops inside an element are the thread's own.
void GpuKernelBuilder::pointwise() {
  if (!laneKept())
    lane.clear();
  laneInRow = false;
  width = 1;
  int64_t lanes = lane.empty() ? 1 : extentOf(lane), outerCount = extentOf(kept) / lanes;
  // Sums of one thread, which FP64 often takes, keep as many values as long fusions do.
  auto widthOf = [&](int64_t extent) {
    return std::min(vectorWidth(extent, contiguousBytes()), reductions.empty() ? 8u : 4u);
  };
  unsigned vector = lane.empty() ? 1 : widthOf(lanes);
  // A flat range keeps its wide vectors and leaves the rest to one more thread.
  bool ragged = false;
  if (!lane.empty() && outerCount == 1 && vector < widthOf(0) && lanes >= 256) {
    vector = widthOf(0);
    ragged = true;
  }
  int64_t whole = outerCount * (lanes / vector), units = whole + ragged;
  int64_t block = 256;
  while (block > 64 && units < 2 * target.multiprocessors * block)
    block /= 2;
  launch("pointwise", {ceilDiv(units, block), 1, 1}, block, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    Value number =
        arith::AddIOp::create(b, arith::MulIOp::create(b, frame.block, e.indexConstant(block)), frame.thread);
    SmallVector<int64_t> order = outerAxes(e);
    auto point = [&](const IndexExpr &position) {
      SmallVector<IndexExpr> at(shape.size());
      auto [outer, inner] = e.space.divide(position, lanes);
      e.spread(outer, shape, order, at);
      if (!lane.empty())
        e.spread(inner, shape, lane, at);
      emitRow(e, outputBuffers(frame.function), at, /*laneGiven=*/true);
    };
    Value first = vector > 1 ? Value(arith::MulIOp::create(b, number, e.indexConstant(vector))) : number;
    Value used = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, number, e.indexConstant(whole));
    e.guarded(used, [&] { point(e.variable(first, whole * vector, vector)); });
    if (!ragged)
      return;
    Value last = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, number, e.indexConstant(whole));
    e.guarded(last, [&] {
      e.loop(e.indexConstant(whole * vector), e.indexConstant(lanes), lanes, 1, {}, [&](IndexExpr i, ValueRange) {
        point(i);
        return SmallVector<Value>();
      });
    });
  });
  markInPlace(/*reductionsToo=*/false);
}

/// True when one pass down the columns of `main`'s operand makes everything: sums over the same elements, and elements
/// at their own index that wait for none of the sums.
bool GpuKernelBuilder::columnsWithElements(ReduceOp main) {
  ArrayRef<int64_t> space = shapeOf(main.getX());
  for (ReduceOp op : reductions) {
    if (shapeOf(op.getX()) != space || op.getAxes() != main.getAxes())
      return false;
    for (ReduceOp other : reductions)
      if (other != op && dependsOn(other, op))
        return false;
  }
  return llvm::all_of(yielded(), [&](Value output) {
    return isRowLevel(output) ? countOf(output) == countOf(main.getY())
                              : shapeOf(output) == space && llvm::none_of(reductions, [&](ReduceOp op) {
                                  return output.getDefiningOp() && dependsOn(output.getDefiningOp(), op);
                                });
  });
}

FailureOr<GpuKernelInfo> GpuKernelBuilder::build() {
  auto choose = [&] {
    if (Operation *op = yielded().empty() ? nullptr : yielded().front().getDefiningOp())
      if (auto form = scatterForm(op); form && outputs.size() == 1)
        return canLink(*form) ? scatterByLinks(*form) : scatter(*form);
    if (bundle())
      return;
    if (!chooseLane(loops)) {
      failed = true;
      return;
    }
    if (reductions.empty()) {
      if (!transposes())
        pointwise();
      return;
    }
    ReduceOp main = reductions.front();
    for (ReduceOp op : reductions)
      if (reducedExtent(op) > reducedExtent(main))
        main = op;
    int64_t extent = reducedExtent(main), points = extentOf(kept);
    ArrayRef<int64_t> space = shapeOf(main.getX());
    bool alongRow = llvm::is_contained(main.getAxes(), fastestAxis(space)) || extent == 1;
    // Sums of the same elements, none of which needs another: two launches may share them out.
    bool flat = row.empty() && llvm::all_of(reductions, [&](ReduceOp op) {
                  return shapeOf(op.getX()) == space && op.getAxes() == main.getAxes() &&
                         countOf(op.getY()) == points &&
                         llvm::none_of(reductions, [&](ReduceOp other) { return other != op && dependsOn(other, op); });
                });
    int64_t busy = 2 * target.multiprocessors;
    bool fewLongRows = points < busy && extent > 16384;
    // Elements that the pass over the columns, or over slices of the rows, writes beside the sums.
    if (!row.empty() && (!alongRow || fewLongRows) && extent >= 64 && points * extent >= 8192 &&
        columnsWithElements(main))
      return columns();
    if (alongRow && !(flat && fewLongRows))
      return rows(extent, "rows", /*partial=*/false);
    if (flat && extent >= 64 && points * extent >= 8192 && (alongRow || points < 512 * busy))
      return columns();
    pointwise();
  };
  choose();
  if (failed) {
    for (GpuLaunch &launch : info.launches)
      launch.function->erase();
    return failure();
  }
  return info;
}

FailureOr<GpuKernelInfo> mpt::emitGpuKernel(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                            ArrayRef<MemRefType> outputs, StringRef name, const GpuTarget &target,
                                            ArrayRef<int64_t> alignments) {
  return GpuKernelBuilder(builder, fusion, inputs, outputs, name, target, alignments).build();
}
