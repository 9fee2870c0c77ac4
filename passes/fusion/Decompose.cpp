// SPDX-License-Identifier: Apache-2.0
// --fusion-decompose: composites in simpler ops, and reductions in two stages.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Fusion/ReductionStages.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_DECOMPOSE
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Replaces composites without a loop form, and those that they are made of.
LogicalResult decomposeComposites(func::FuncOp function) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      auto composite = dyn_cast<Decomposable>(op);
      if (!composite || isa<LoopLowering>(op))
        continue;
      OpBuilder builder(&op);
      FailureOr<SmallVector<Value>> values = composite.decompose(builder);
      if (failed(values))
        return op.emitOpError() << "expected a decomposition into ops with loop forms";
      op.replaceAllUsesWith(*values);
      op.erase();
      changed = true;
    }
  }
  return success();
}

/// Sums of scattered narrow values run in FP32 and are rounded once.
void widenScatter(ScatterAddOp op) {
  RankedTensorType y = tensorType(op.getY());
  auto element = dyn_cast<FloatType>(y.getElementType());
  if (!element || element.getWidth() >= 32)
    return;
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  Value wide = ScatterAddOp::create(builder, op.getLoc(), y.clone(wideType(element)), op.getIndices(),
                                    b.widen(op.getUpdates()), op.getAxis());
  op.getY().replaceAllUsesWith(b.cast(wide, element));
  op.erase();
}

/// What no result or write needs; decompositions make more than is used.
void eraseUnused(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

struct Decompose : mpt::impl::DecomposeBase<Decompose> {
  using DecomposeBase::DecomposeBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (failed(decomposeComposites(function)))
        return signalPassFailure();
      for (ScatterAddOp op : llvm::make_early_inc_range(function.getOps<ScatterAddOp>()))
        widenScatter(op);
      sharedSums ? formSharedSums(function) : splitReductions(function);
      eraseUnused(function);
    }
  }

private:
  void splitReductions(func::FuncOp function) {
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      numSplit += splitInBlocks(op);
  }

  void formSharedSums(func::FuncOp function) {
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      fuseMoments(op);
    moveBeforeReshapes(function);
    for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
      numSplit += splitExtremum(op);
  }
};

} // namespace
