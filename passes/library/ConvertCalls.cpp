// SPDX-License-Identifier: Apache-2.0
// --library-convert-calls: every matrix multiplication and convolution becomes a library call.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "passes/library/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mpt {
#define GEN_PASS_DEF_CONVERTCALLS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

template <typename Op, typename Call> struct Convert : OpRewritePattern<Op> {
  using OpRewritePattern<Op>::OpRewritePattern;
  LogicalResult matchAndRewrite(Op op, PatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<Call>(op, op);
    return success();
  }
};

struct ConvertCalls : mpt::impl::ConvertCallsBase<ConvertCalls> {
  using ConvertCallsBase::ConvertCallsBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Convert<MatMulOp, library::GemmOp>, Convert<ConvOp, library::ConvOp>,
                 Convert<ConvBackwardDataOp, library::ConvOp>, Convert<ConvBackwardWeightsOp, library::ConvOp>>(
        &getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};

} // namespace
