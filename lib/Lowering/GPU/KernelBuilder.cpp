// SPDX-License-Identifier: Apache-2.0
// Launches of a kernel, and the queries of schedules for its buffers.
#include "mpt/Lowering/GPU/KernelBuilder.h"

#include "Contraction.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Utils/IndexingUtils.h"

using namespace mlir;
using namespace mpt;

GpuKernelBuilder::GpuKernelBuilder(OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                   ArrayRef<MemRefType> outputs, StringRef name, const DeviceDescription &device,
                                   ArrayRef<int64_t> alignments)
    : KernelNest(fusion, inputs, outputs), builder(builder), name(name), device(device), alignments(alignments) {
  loops.vectorBits = 64;
  loops.warpThreads = device.warpThreads;
  loops.fma = true;
  loops.keepsFloatOps = true;
  for (auto reduce : body().getOps<ReduceOp>())
    reductions.push_back(reduce);
}

LogicalResult GpuKernelBuilder::findLane() {
  if (!probed)
    failed |= !chooseLane(loops);
  probed = true;
  return success(!failed);
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
    e.alignments[function.getArgument(i)] = alignmentOf(i);
  e.laneInReductions = false;
  e.space.hoistsRemainders = true;
  Frame frame{e, function, gpu::ThreadIdOp::create(b, gpu::Dimension::x), gpu::BlockIdOp::create(b, gpu::Dimension::x)};
  fill(frame);
  failed |= e.failed();
  contractSums(function);
  info.launches.back().sharedBytes = frame.sharedBytes;
  setAttr<MPTDialect::ScheduleAttrHelper>(function, b.getStringAttr(schedule));
  setAttr<MPTDialect::GridAttrHelper>(function, b.getDenseI64ArrayAttr(grid));
  setAttr<MPTDialect::BlockAttrHelper>(function, b.getDenseI64ArrayAttr({block, 1, 1}));
  if (info.launches.size() == 1)
    setAttr<MPTDialect::InPlaceAttrHelper>(function, b.getDenseI64ArrayAttr({}));
  setAttr<MPTDialect::SharedBytesAttrHelper>(function, b.getI64IntegerAttr(frame.sharedBytes));
}

void GpuKernelBuilder::launchUnits(StringRef schedule, int64_t units, function_ref<void(Frame &, Value, Value)> fill) {
  constexpr int64_t block = 64; // such units are few: small blocks reach more multiprocessors
  launch(schedule, {ceilDiv(units, block), 1, 1}, block, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    Value first = arith::MulIOp::create(e.b, frame.block, e.indexConstant(block));
    Value begin = arith::AddIOp::create(e.b, first, frame.thread);
    Value end = arith::AddIOp::create(e.b, begin, e.indexConstant(1));
    fill(frame, begin, arith::MinUIOp::create(e.b, end, e.indexConstant(units)));
  });
}

//===----------------------------------------------------------------------===//
// Layout
//===----------------------------------------------------------------------===//

SmallVector<int64_t> GpuKernelBuilder::stridesOf(ArrayRef<int64_t> shape) const {
  int64_t offset;
  SmallVector<int64_t> strides;
  for (ArrayRef<MemRefType> types : {inputs, outputs})
    for (MemRefType type : types)
      if (type.getShape() == shape && succeeded(type.getStridesAndOffset(strides, offset)))
        return strides;
  return computeSuffixProduct(shape);
}

int64_t GpuKernelBuilder::fastestAxis(ArrayRef<int64_t> shape) const {
  SmallVector<int64_t> strides = stridesOf(shape);
  int64_t fastest = -1;
  for (int64_t axis = 0, rank = shape.size(); axis < rank; ++axis)
    if (shape[axis] > 1 && (fastest < 0 || strides[axis] <= strides[fastest]))
      fastest = axis;
  return fastest;
}

SmallVector<int64_t> GpuKernelBuilder::contiguousBytes() const {
  SmallVector<int64_t> bytes;
  for (const MemoryAccess &access : accesses)
    if (!lane.empty() && access.address.coefficient(variables[lane.back()]) == 1)
      bytes.push_back(access.bytes);
  return bytes;
}

bool GpuKernelBuilder::rowsBeginAligned(int64_t length, unsigned width) const {
  auto isAligned = [&](MemRefType type) {
    if (type.getNumElements() < length)
      return true;
    SmallVector<int64_t> strides;
    int64_t offset;
    if (llvm::failed(type.getStridesAndOffset(strides, offset)) || type.getShape().back() != length ||
        strides.back() != 1)
      return false;
    return llvm::all_of(ArrayRef<int64_t>(strides).drop_back(), [&](int64_t stride) { return stride % width == 0; });
  };
  return llvm::all_of(inputs, isAligned) && llvm::all_of(outputs, isAligned);
}

int64_t GpuKernelBuilder::alignmentOf(size_t number) const {
  return number < alignments.size() ? alignments[number] : device.accessBytes;
}

unsigned GpuKernelBuilder::vectorWidth(int64_t extent, ArrayRef<int64_t> elementBytes) const {
  int64_t narrowest = device.accessBytes;
  for (int64_t bytes : elementBytes)
    narrowest = std::min(narrowest, bytes);
  // Long fusions keep many values at a time: narrower vectors keep them in registers.
  int64_t limit = fusion->getRegion(0).front().getOperations().size() > 64 ? 4 : 8;
  int64_t width = std::clamp<int64_t>(device.accessBytes / narrowest, 1, limit);
  while (extent % width != 0)
    width /= 2;
  return width;
}

//===----------------------------------------------------------------------===//
// In place
//===----------------------------------------------------------------------===//

bool GpuKernelBuilder::feedsAtOwnIndex(Value value, bool reductionsToo, unsigned depth) {
  if (depth > 64)
    return false;
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    if (user->hasTrait<OpTrait::IsTerminator>()) {
      if (isRowLevel(value))
        return false;
      continue;
    }
    if (isReduction(user)) {
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
      if (inputs[i] != outputs[o] || isRowLevel(output) || shapeOf(argument) != shapeOf(output) ||
          alignmentOf(i) < alignmentOf(inputs.size() + o) || !feedsAtOwnIndex(argument, reductionsToo))
        continue;
      pairs.push_back(i);
      pairs.push_back(inputs.size() + o);
    }
  setAttr<MPTDialect::InPlaceAttrHelper>(info.launches.front().function, builder.getDenseI64ArrayAttr(pairs));
}
