// SPDX-License-Identifier: Apache-2.0
// --library-convert-gemms: every matrix multiplication becomes a library call.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "passes/library/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/WalkPatternRewriteDriver.h"

namespace mpt {
#define GEN_PASS_DEF_CONVERTGEMMS
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Select : OpRewritePattern<MatMulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MatMulOp matmul, PatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<library::GemmOp>(matmul, matmul);
    return success();
  }
};

struct ConvertGemms : mpt::impl::ConvertGemmsBase<ConvertGemms> {
  using ConvertGemmsBase::ConvertGemmsBase;
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<Select>(&getContext());
    walkAndApplyPatterns(getOperation(), std::move(patterns));
  }
};

} // namespace
