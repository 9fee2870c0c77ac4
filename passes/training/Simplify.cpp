// SPDX-License-Identifier: Apache-2.0
// --training-simplify: simpler forms of the core ops, equal ops merged.
#include "mpt/Dialect/MPT/Simplify.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Support/Refusal.h"
#include "passes/training/Passes.h"

#include "mlir/IR/Dominance.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace mpt {
#define GEN_PASS_DEF_SIMPLIFY
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "training-simplify"

namespace {

struct Simplify : mpt::impl::SimplifyBase<Simplify> {
  LogicalResult initialize(MLIRContext *context) override {
    RewritePatternSet set(context);
    populateSimplifyPatterns(set);
    patterns = std::move(set);
    return success();
  }

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && failed(simplify(function)))
        return signalPassFailure();
  }

private:
  LogicalResult simplify(func::FuncOp function) {
    // Gradients stay although nothing uses them yet: meanwhile the function returns them.
    Operation *end = function.getBody().front().getTerminator();
    unsigned results = end->getNumOperands();
    for (auto gradient : function.getOps<train::GradientOp>())
      end->insertOperands(end->getNumOperands(), gradient.getResult());

    RefusalListener refusals(DEBUG_TYPE);
    LogicalResult status =
        applyPatternsGreedily(function.getBody(), patterns, GreedyRewriteConfig().setListener(&refusals));
    IRRewriter rewriter(function.getContext());
    DominanceInfo dominance(function);
    eliminateCommonSubExpressions(rewriter, dominance, function);

    end->eraseOperands(results, end->getNumOperands() - results);
    return status;
  }

  FrozenRewritePatternSet patterns;
};

} // namespace
