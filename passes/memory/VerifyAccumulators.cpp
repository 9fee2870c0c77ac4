// SPDX-License-Identifier: Apache-2.0
// --memory-verify-accumulators: no kernel keeps a running value in less than FP32, in registers or in memory.
// Matcher: a value that goes round a loop, or through memory, by way of arithmetic that rounds it to a narrow type
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "passes/memory/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Interfaces/LoopLikeInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

namespace mpt {
#define GEN_PASS_DEF_MEMORYVERIFYACCUMULATORS
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

bool isNarrow(Type type) {
  if (auto matrix = dyn_cast<gpu::MMAMatrixType>(type))
    type = matrix.getElementType();
  Type element = getElementTypeOrSelf(type);
  return isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
}

/// Rounds a result that combines its operands. Maxima, selections and casts move values.
bool combines(Operation *op) {
  return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp, math::FmaOp, vector::FMAOp,
             vector::ReductionOp, gpu::SubgroupMmaComputeOp>(op);
}

Value rootOf(Value memory) {
  while (auto view = memory.getDefiningOp<ViewLikeOpInterface>())
    memory = view.getViewSource();
  return memory;
}

/// The buffer that `op` reads (writes); null where it does not.
template <typename Effect> Value bufferOf(Operation *op) {
  auto memory = dyn_cast<MemoryEffectOpInterface>(op);
  if (!memory)
    return {};
  SmallVector<MemoryEffects::EffectInstance> effects;
  memory.getEffects(effects);
  for (const auto &effect : effects)
    if (isa<Effect>(effect.getEffect()) && effect.getValue() && isa<MemRefType>(effect.getValue().getType()))
      return effect.getValue();
  return {};
}

/// Whether `value` is made, by combining, of a value that `isStart` holds for.
bool isMadeOf(Value value, llvm::function_ref<bool(Value)> isStart) {
  SmallVector<std::pair<Value, unsigned>> open{{value, 0}};
  llvm::SmallDenseSet<std::pair<Value, unsigned>> seen;
  while (!open.empty()) {
    auto [next, combined] = open.pop_back_val();
    if (!seen.insert({next, combined}).second)
      continue;
    if (combined && isStart(next))
      return true;
    if (auto argument = dyn_cast<BlockArgument>(next)) {
      auto loop = dyn_cast_or_null<LoopLikeOpInterface>(argument.getOwner()->getParentOp());
      OpOperand *init = loop ? loop.getTiedLoopInit(argument) : nullptr;
      if (init)
        open.append({{init->get(), combined}, {loop.getTiedLoopYieldedValue(argument)->get(), combined}});
      continue;
    }
    Operation *op = next.getDefiningOp();
    if (bufferOf<MemoryEffects::Read>(op))
      continue; // a load: its address is no part of the value
    for (Value operand : op->getOperands())
      open.push_back({operand, combined | unsigned(combines(op))});
    for (Region &region : op->getRegions())
      for (Block &block : region)
        if (block.mightHaveTerminator() &&
            cast<OpResult>(next).getResultNumber() < block.getTerminator()->getNumOperands())
          open.push_back({block.getTerminator()->getOperand(cast<OpResult>(next).getResultNumber()), combined});
  }
  return false;
}

LogicalResult verifyInMemory(Operation *op) {
  Value buffer = bufferOf<MemoryEffects::Write>(op);
  if (!buffer || !isNarrow(buffer.getType()))
    return success();
  Value root = rootOf(buffer);
  auto isOldValue = [&](Value value) {
    Operation *load = value.getDefiningOp();
    Value from = load ? bufferOf<MemoryEffects::Read>(load) : Value();
    return from && rootOf(from) == root;
  };
  for (Value operand : op->getOperands())
    if (isNarrow(operand.getType()) && !isa<MemRefType>(operand.getType()) && isMadeOf(operand, isOldValue))
      return op->emitOpError() << "expected a running value of f32 or wider in memory, got "
                               << getElementTypeOrSelf(buffer.getType()) << ": every update rounds it";
  return success();
}

LogicalResult verifyInRegisters(LoopLikeOpInterface loop) {
  for (BlockArgument argument : loop.getRegionIterArgs()) {
    OpOperand *next = isNarrow(argument.getType()) ? loop.getTiedLoopYieldedValue(argument) : nullptr;
    if (next && isMadeOf(next->get(), [&](Value value) { return value == argument; }))
      return loop->emitOpError() << "expected a running value of f32 or wider, got " << argument.getType()
                                 << ": every turn rounds it";
  }
  return success();
}

struct MemoryVerifyAccumulators : mpt::impl::MemoryVerifyAccumulatorsBase<MemoryVerifyAccumulators> {
  void runOnOperation() override {
    bool fine = true;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (hasAttr<MPTDialect::KernelAttrHelper>(function))
        function.walk([&](Operation *op) {
          fine &= succeeded(verifyInMemory(op));
          if (auto loop = dyn_cast<LoopLikeOpInterface>(op))
            fine &= succeeded(verifyInRegisters(loop));
          if (combines(op) && op->getNumResults() == 1 && isNarrow(op->getResult(0).getType())) {
            op->emitOpError() << "expected arithmetic in f32 or wider, got " << op->getResult(0).getType();
            fine = false;
          }
        });
    markAllAnalysesPreserved();
    if (!fine)
      signalPassFailure();
  }
};

} // namespace
