// SPDX-License-Identifier: Apache-2.0
// --library-split-heads: attention between reshapes or transposes becomes one of [batch, heads, queries, keys].
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Library/HeadViews.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "library-split-heads"

namespace mpt {
#define GEN_PASS_DEF_SPLITHEADS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// The ops between the GEMMs before and behind a softmax, with these and the views around them.
class Region {
public:
  explicit Region(SoftmaxOp softmax) : elements(tensorType(softmax.getY()).getNumElements()) { visit(softmax); }
  SmallVector<Operation *> take() { return ops.takeVector(); }

private:
  void visit(Operation *op) {
    if (!op || op->getNumResults() != 1 || !isa<RankedTensorType>(op->getResult(0).getType()))
      return;
    const bool isGemm = isa<MatMulOp>(op);
    if (!isGemm && (!(isCarried(op) || isView(op)) || tensorType(op->getResult(0)).getNumElements() != elements))
      return;
    if (!ops.insert(op))
      return;
    SmallVector<Operation *> around(op->getResult(0).getUsers());
    for (Value operand : op->getOperands())
      around.push_back(operand.getDefiningOp());
    for (Operation *next : around) {
      if (!isGemm)
        visit(next);
      else if (isView(next))
        ops.insert(next);
    }
  }
  int64_t elements;
  llvm::SetVector<Operation *> ops;
};

struct SplitHeads : mpt::impl::SplitHeadsBase<SplitHeads> {
  using SplitHeadsBase::SplitHeadsBase;
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    populateHeadViewPatterns(set);
    patterns = std::move(set);
    return success();
  }

  void runOnOperation() override {
    // Ops that are dead after a round are no readers in the next one.
    constexpr int mostRounds = 4;
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (int round = 0; !function.isExternal() && round < mostRounds; ++round) {
        FailureOr<bool> changed = rewrite(function);
        if (failed(changed))
          return signalPassFailure();
        if (!*changed)
          break;
      }
  }

private:
  FailureOr<bool> rewrite(func::FuncOp function) {
    llvm::SetVector<Operation *> ops;
    for (auto softmax : function.getOps<SoftmaxOp>())
      ops.insert_range(Region(softmax).take());
    const auto gemms = [&] { return llvm::count_if(function.getOps<MatMulOp>(), isSplit); };
    const auto before = gemms();
    RefusalListener refusals(DEBUG_TYPE);
    GreedyRewriteConfig config;
    config.setListener(&refusals).enableConstantCSE(false);
    config.setStrictness(GreedyRewriteStrictness::ExistingAndNewOps);
    bool changed = false;
    if (failed(applyOpPatternsGreedily(ops.takeVector(), patterns, config, &changed)))
      return failure();
    if (!changed)
      return false;
    // GEMMs that read one operand got a reshape of it each.
    IRRewriter rewriter(function.getContext());
    DominanceInfo dominance(function);
    eliminateCommonSubExpressions(rewriter, dominance, function);
    // Joined operands that nobody reads any more: readers are counted later.
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
    numSplit += gemms() - before;
    return true;
  }

  static bool isSplit(MatMulOp gemm) { return rankOf(gemm.getY()) == splitRank; }
  FrozenRewritePatternSet patterns;
};

} // namespace
