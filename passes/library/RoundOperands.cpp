// SPDX-License-Identifier: Apache-2.0
// --library-round-operands: GEMMs and gathers of rounded parameters read the FP32 values and round them.
// Matcher: the rounding of a parameter, with the multiplications and the ops that pick elements behind it.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Library/Matching.h"
#include "mpt/Library/RoundedReads.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_ROUNDOPERANDS
#include "passes/library/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "library-round-operands"

using namespace mlir;
using namespace mpt;

namespace {

struct RoundOperands : mpt::impl::RoundOperandsBase<RoundOperands> {
  using RoundOperandsBase::RoundOperandsBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (CastOp cast : llvm::to_vector(function.getOps<CastOp>()))
        if (library::isRoundedF32(cast) && library::rootOf(cast.getX()).getDefiningOp<train::ReadOp>())
          takeIn(cast);
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }

private:
  /// Readers of `cast` round by themselves, if all of them can: else it is in memory anyway.
  void takeIn(CastOp cast) {
    if (Operation *reader = library::readerOfCopy(cast)) {
      (void)(refuse(DEBUG_TYPE, cast) << "rounded in memory: expected readers that round by themselves, got "
                                      << reader->getName());
      return;
    }
    SmallVector<OpOperand *> uses;
    library::collectUses(cast.getY(), uses);
    IRRewriter rewriter(&getContext());
    llvm::SetVector<Operation *> owners;
    for (OpOperand *use : uses)
      owners.insert(use->getOwner());
    Type narrow = tensorType(cast.getY()).getElementType();
    for (Operation *op : owners) {
      rewriter.setInsertionPoint(op);
      if (auto matmul = dyn_cast<MatMulOp>(op))
        op = rewriter.replaceOpWithNewOp<library::GemmOp>(matmul, matmul);
      if (auto gemm = dyn_cast<library::GemmOp>(op)) {
        gemm.setReadAsAttr(TypeAttr::get(narrow));
        rewriter.setInsertionPoint(gemm);
        widen(gemm.getAMutable(), cast, rewriter);
        widen(gemm.getBMutable(), cast, rewriter);
        continue;
      }
      for (OpOperand &operand : op->getOpOperands())
        widen(operand, cast, rewriter);
      Value picked = op->getResult(0);
      picked.setType(tensorType(picked).clone(rewriter.getF32Type()));
      rewriter.setInsertionPointAfter(op);
      auto rounded = CastOp::create(rewriter, op->getLoc(), picked, narrow);
      picked.replaceAllUsesExcept(rounded.getY(), rounded);
    }
    ++numTaken;
  }

  /// `operand`, a view of the result of `cast`, becomes the same view of its operand.
  static void widen(OpOperand &operand, CastOp cast, IRRewriter &rewriter) {
    if (library::rootOf(operand.get()) == cast.getY())
      operand.set(viewed(operand.get(), cast, rewriter));
  }
  static Value viewed(Value value, CastOp cast, IRRewriter &rewriter) {
    if (value == cast.getY())
      return cast.getX();
    Value wide = viewed(value.getDefiningOp()->getOperand(0), cast, rewriter);
    Operation *view = rewriter.clone(*value.getDefiningOp());
    view->setOperand(0, wide);
    Value shown = view->getResult(0);
    shown.setType(tensorType(shown).clone(rewriter.getF32Type()));
    return shown;
  }
};

} // namespace
