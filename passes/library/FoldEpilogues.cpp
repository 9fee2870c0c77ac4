// SPDX-License-Identifier: Apache-2.0
// --library-fold-epilogues: a bias, and ReLU behind it, move from fusions into the GEMMs that feed them.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Library/Matching.h"
#include "passes/library/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_FOLDEPILOGUES
#include "passes/library/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "library-fold-epilogues"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// The operand of the fusion, a vector along the last dimension, that `add` adds to `argument`; null if it is none.
BlockArgument biasOf(AddOp add, Value argument) {
  Value other = add.getLhs() == argument ? add.getRhs() : add.getLhs();
  auto broadcast = other.getDefiningOp<BroadcastOp>();
  auto vector = broadcast && other != argument ? dyn_cast<BlockArgument>(broadcast.getX()) : BlockArgument();
  RankedTensorType type = tensorType(argument);
  bool columns = vector && tensorType(vector).getRank() == 1 && broadcast.getDims()[0] == type.getRank() - 1 &&
                 tensorType(vector).getDimSize(0) == type.getShape().back();
  return columns ? vector : BlockArgument();
}

/// A bias behind a GEMM, and a ReLU behind that, become its epilogue.
struct FoldBias : CountingPattern<GemmOp> {
  FoldBias(MLIRContext *context, bool throughReshape, Pass::Statistic &count)
      : CountingPattern(context, count), throughReshape(throughReshape) {}

  /// The operand of the fusion behind `gemm`: the result, or a reshape of it with the same columns.
  Value shownResult(GemmOp gemm) const {
    Value result = gemm.getD();
    auto reshape = throughReshape ? onlyReader<ReshapeOp>(result) : ReshapeOp();
    bool columns = reshape && reshape.getY().hasOneUse() && tensorType(reshape.getY()).getRank() > 0 &&
                   tensorType(reshape.getY()).getShape().back() == tensorType(result).getShape().back();
    return columns ? reshape.getY() : result;
  }

  LogicalResult matchAndRewrite(GemmOp gemm, PatternRewriter &rewriter) const override {
    Type element = elementOf(gemm.getD());
    if (!element.isF32() && !element.isF16() && !element.isBF16())
      return rewriter.notifyMatchFailure(gemm, "not a type with epilogues: expected a result of FP32 or 16 bits");
    if (gemm.getBias() || gemm.getScale() || !gemm.getForm().isNone())
      return rewriter.notifyMatchFailure(gemm, "GEMM has an epilogue: expected none, and no scale of its result");
    Value shown = shownResult(gemm);
    auto fusion = onlyReader<FusionOp>(shown);
    if (!fusion)
      return rewriter.notifyMatchFailure(gemm, "no kernel behind it: expected one fusion as the only reader");
    BlockArgument argument = fusion.getBody().front().getArgument(shown.use_begin()->getOperandNumber());
    auto add = onlyReader<AddOp>(argument);
    BlockArgument vector = add ? biasOf(add, argument) : BlockArgument();
    if (!vector)
      return rewriter.notifyMatchFailure(
          gemm,
          "no bias behind it: expected the fusion to add a vector along the columns, and to read nothing else of it");
    Value bias = fusion.getInputs()[vector.getArgNumber()];
    if (!makeAvailable(bias, gemm, rewriter))
      return rewriter.notifyMatchFailure(gemm, "bias is not there yet: expected one that is made before the GEMM");
    fold(gemm, bias, fusion, add, argument, rewriter);
    if (fusion.getInputs().size() == 1 && fusion.getInputs()[0] == shown &&
        isa<YieldOp>(fusion.getBody().front().front()) && fusion.getNumResults() == 1)
      rewriter.replaceOp(fusion, shown);
    ++count;
    return success();
  }

private:
  /// `add` and a ReLU behind it leave the fusion, and inputs that nothing reads any more.
  static void fold(GemmOp gemm, Value bias, FusionOp fusion, AddOp add, BlockArgument argument,
                   PatternRewriter &rewriter) {
    auto relu = onlyReader<ReluOp>(add.getY());
    auto form = EpilogueAttr::none(gemm.getContext())
                    .withActivation(relu ? Activation::relu : Activation::none)
                    .withRound(!elementOf(gemm.getD()).isF32());
    rewriter.modifyOpInPlace(gemm, [&] {
      gemm.getBiasMutable().assign(bias);
      if (!form.isNone())
        gemm.setEpilogueAttr(form);
    });
    Operation *repeated = (add.getLhs() == argument ? add.getRhs() : add.getLhs()).getDefiningOp();
    if (relu)
      rewriter.replaceOp(relu, argument);
    rewriter.replaceOp(add, argument);
    if (repeated->use_empty())
      rewriter.eraseOp(repeated);
    rewriter.modifyOpInPlace(fusion, [&] {
      Block &body = fusion.getBody().front();
      for (unsigned i = body.getNumArguments(); i-- > 0;)
        if (body.getArgument(i).use_empty()) {
          body.eraseArgument(i);
          fusion.getInputsMutable().erase(i);
        }
    });
  }

  const bool throughReshape;
};

struct FoldEpilogues : mpt::impl::FoldEpiloguesBase<FoldEpilogues> {
  using FoldEpiloguesBase::FoldEpiloguesBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() &&
          failed(applyInOrder<GemmOp, FoldBias>(function, DEBUG_TYPE, biasThroughReshape, numFolded)))
        return signalPassFailure();
  }
};

} // namespace
