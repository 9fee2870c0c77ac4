// SPDX-License-Identifier: Apache-2.0
// Calls of a step; the loop's body sees buffers through its arguments.
#include "StepLoop.h"

#include "Kernels.h"
#include "RowPadding.h"

#include "mpt/Memory/Layout.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

RankedTensorType tensorOf(Value memref) {
  MemRefType type = bufferTypeOf(memref);
  return RankedTensorType::get(type.getShape(), type.getElementType());
}

/// A fusion outside of any function; its inputs are arguments alone.
OwningOpRef<Operation *> fusionOf(Location loc, ArrayRef<StepView> inputs, ArrayRef<StepView> outputs,
                                  StepLoop::Formula formula) {
  OperationState made(loc, FusionOp::getOperationName());
  Block &block = made.addRegion()->emplaceBlock();
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToEnd(&block);
  GraphBuilder b(builder, loc);
  SmallVector<Value> values;
  for (const StepView &input : inputs)
    values.push_back(b.widen(block.addArgument(tensorOf(input.memref), loc)));
  values = formula(b, values);
  assert(values.size() == outputs.size() && "a formula has a value for each output");
  for (auto [value, output] : llvm::zip_equal(values, outputs)) {
    value = b.cast(value, bufferTypeOf(output.memref).getElementType());
    made.addTypes(value.getType());
  }
  YieldOp::create(builder, loc, values);
  return Operation::create(made);
}

} // namespace

Value StepLoop::read(Value tensor) {
  Value memref = state.buffer(tensor);
  MemRefType type = bufferTypeOf(memref);
  Sizes strides = stridesOf(type);
  bool repeats = llvm::any_of(llvm::zip(type.getShape(), strides),
                              [](auto dimension) { return std::get<0>(dimension) > 1 && std::get<1>(dimension) == 0; });
  if (!repeats && (type.getShape().back() == 1 || strides.back() == 1))
    return memref;
  return state.dense(loc, memref, rowMajor(type.getRank()));
}

Value StepLoop::scratch(int64_t rows, int64_t columns, Type element) {
  return state.allocate(loc, withAlignedRows(MemRefType::get({rows, columns}, element), state.policy.alignment));
}

StepViews StepLoop::blocks(Value memref, int64_t columns, int64_t count, int64_t from) {
  Sizes strides = stridesOf(bufferTypeOf(memref));
  StepViews result;
  for (int64_t i = from; i < from + count; ++i)
    result.push_back(
        {state.view(loc, memref, {bufferTypeOf(memref).getDimSize(0), columns}, strides, i * columns * strides[1])});
  return result;
}

StepViews StepLoop::blocks(Value memref, int64_t first, int64_t by, int64_t columns, int64_t count, int64_t from) {
  MemRefType type = bufferTypeOf(memref);
  Sizes strides = stridesOf(type);
  StepViews result;
  for (int64_t i = from; i < from + count; ++i)
    result.push_back({state.view(loc, memref, {type.getDimSize(1), columns}, {strides[1], strides[2]},
                                 first * strides[0] + i * columns * strides[2]),
                      by * strides[0]});
  return result;
}

Value StepLoop::use(const StepView &view) {
  if (!inside)
    return view.memref;
  Block *body = inside->getInsertionBlock();
  for (auto [i, other] : llvm::enumerate(shown))
    if (other.memref == view.memref && other.advance == view.advance)
      return body->getArgument(i);
  shown.push_back(view);
  return body->addArgument(view.memref.getType(), loc);
}

/// In every step.
int64_t StepLoop::alignmentOf(const StepView &view) const {
  int64_t alignment = state.alignmentOf(view.memref);
  while (view.advance * elementBytes(bufferTypeOf(view.memref).getElementType()) % alignment != 0)
    alignment /= 2;
  return alignment;
}

void StepLoop::launch(ArrayRef<StepView> inputs, ArrayRef<StepView> outputs, Formula formula) {
  OwningOpRef<Operation *> made = fusionOf(loc, inputs, outputs, formula);
  auto fusion = cast<FusionOp>(*made);
  SmallVector<MemRefType> types[2];
  SmallVector<int64_t> alignments;
  SmallVector<Value> operands;
  for (auto [views, list] : llvm::zip(std::array{inputs, outputs}, types))
    for (const StepView &view : views) {
      list.push_back(bufferTypeOf(view.memref));
      alignments.push_back(alignmentOf(view));
      operands.push_back(use(view));
    }
  func::FuncOp kernel = state.kernels.get(fusion, types[0], types[1], alignments);
  rt::LaunchOp::create(calls(), loc, kernel.getSymName(), operands, inputs.size(), /*extent=*/0, /*grain=*/0);
}

void StepLoop::gemm(StepView a, Value b, bool transposed, StepView d) {
  Sizes shape(bufferTypeOf(b).getShape()), strides = stridesOf(bufferTypeOf(b));
  if (transposed) {
    std::swap(shape[0], shape[1]);
    std::swap(strides[0], strides[1]);
  }
  StepView right{state.view(loc, b, shape, strides)};
  Value left = use(a), weights = use(right), result = use(d);
  rt::GemmOp::create(calls(), loc, left, weights, Value(), ValueRange(), Value(), Value(), Value(), result, nullptr,
                     APFloat(1.0), TypeAttr());
}

void StepLoop::repeat(int64_t count, llvm::function_ref<void()> body) {
  if (count < 1)
    return;
  if (count == 1)
    return body();
  Region region;
  OpBuilder builder(loc.getContext());
  builder.setInsertionPointToEnd(&region.emplaceBlock());
  inside = &builder;
  body();
  inside = nullptr;
  SmallVector<Value> memrefs;
  SmallVector<int64_t> advances;
  for (const StepView &view : std::exchange(shown, {})) {
    memrefs.push_back(view.memref);
    advances.push_back(view.advance);
  }
  auto loop = rt::RepeatOp::create(state.builder, loc, count, memrefs, advances);
  loop.getBody().takeBody(region);
}
