// SPDX-License-Identifier: Apache-2.0
// --library-fold-scales: multiplications by scalars before and behind GEMMs become scales of their calls.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Library/Matching.h"
#include "passes/library/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_FOLDSCALES
#include "passes/library/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "library-fold-scales"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

/// FP32 or a 16-bit type: the types that GEMMs round their FP32 sums to.
bool isRounded(Value value) {
  return elementOf(value).isF32() || elementOf(value).isF16() || elementOf(value).isBF16();
}

/// The value in the body that is the only result of `fusion`; null if it has several.
Value onlyResult(FusionOp fusion) {
  return fusion.getNumResults() == 1 ? fusion.getBody().front().getTerminator()->getOperand(0) : Value();
}

/// The factor by which `product`, a multiplication of `value`, multiplies it.
Value factorOf(Value product, Value value) {
  auto mul = product ? product.getDefiningOp<MulOp>() : MulOp();
  if (!mul)
    return {};
  return mul.getLhs() == value ? mul.getRhs() : mul.getRhs() == value ? mul.getLhs() : Value();
}

/// The FP32 scalar of the fusion's operands that `value` repeats.
BlockArgument scalarArgument(Value value) {
  auto broadcast = value ? value.getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto argument = broadcast ? dyn_cast<BlockArgument>(broadcast.getX()) : BlockArgument();
  return argument && isF32Scalar(argument) ? argument : BlockArgument();
}

/// The argument for `value` of the body of the fusion that alone reads it.
BlockArgument argumentOf(FusionOp fusion, Value value) {
  return fusion.getBody().front().getArgument(value.use_begin()->getOperandNumber());
}

/// A fusion that only multiplies by a constant becomes the alpha of the GEMMs that read its result, or of the one whose
/// result it reads.
struct FoldAlpha : CountingPattern<FusionOp> {
  using CountingPattern::CountingPattern;

  /// The constant that `fusion` multiplies its one operand by, and does nothing else.
  static std::optional<double> constantFactor(FusionOp fusion) {
    Value argument = fusion.getInputs().size() == 1 ? fusion.getBody().front().getArgument(0) : Value();
    Value factor = argument ? factorOf(onlyResult(fusion), argument) : Value();
    auto constant = factor ? factor.getDefiningOp<ConstantOp>() : ConstantOp();
    auto splat = constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
    if (!splat || !isa<FloatType>(splat.getElementType()) ||
        fusion.getInputs()[0].getType() != fusion.getOutputs()[0].getType())
      return std::nullopt;
    return splat.getSplatValue<APFloat>().convertToDouble();
  }

  /// GEMMs that `value` is a factor of, once for each use, through views; false where anything else reads it.
  static bool collectGemms(Value value, SmallVectorImpl<GemmOp> &gemms) {
    return llvm::all_of(value.getUses(), [&](OpOperand &use) {
      if (isOperandView(use.getOwner()))
        return collectGemms(use.getOwner()->getResult(0), gemms);
      auto gemm = dyn_cast<GemmOp>(use.getOwner());
      if (!gemm || use.getOperandNumber() > 1 || !isRounded(gemm.getA()) || !isRounded(gemm.getB()) ||
          !isRounded(gemm.getD()))
        return false;
      gemms.push_back(gemm);
      return true;
    });
  }

  /// The GEMM whose result, through views, is `value`, with nothing added to it yet.
  static GemmOp gemmBefore(Value value) {
    while (value.hasOneUse() && value.getDefiningOp() && isOperandView(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    auto gemm = value.getDefiningOp<GemmOp>();
    bool fits = gemm && value == gemm.getD() && value.hasOneUse() && gemm.getForm().isNone() && !gemm.getBias() &&
                isRounded(gemm.getA()) && isRounded(value);
    return fits ? gemm : GemmOp();
  }

  LogicalResult matchAndRewrite(FusionOp fusion, PatternRewriter &rewriter) const override {
    std::optional<double> factor = constantFactor(fusion);
    if (!factor)
      return rewriter.notifyMatchFailure(fusion, "not a scale: expected a multiplication by a constant alone");
    SmallVector<GemmOp> gemms;
    if (!collectGemms(fusion.getOutputs()[0], gemms)) {
      GemmOp gemm = gemmBefore(fusion.getInputs()[0]);
      if (!gemm)
        return rewriter.notifyMatchFailure(fusion,
                                           "no GEMM beside it: expected GEMMs alone as readers of the scaled tensor, "
                                           "or one without epilogue as its source");
      gemms.assign(1, gemm);
    }
    // Sums of an operand come from the call unscaled, or not, as the library likes.
    if (llvm::any_of(gemms, [](GemmOp gemm) { return static_cast<bool>(gemm.getSums()); }))
      return rewriter.notifyMatchFailure(fusion, "GEMM sums a matrix too: expected one without sums");
    for (GemmOp gemm : gemms)
      rewriter.modifyOpInPlace(
          gemm, [&] { gemm.setAlphaAttr(rewriter.getF64FloatAttr(gemm.getAlpha().convertToDouble() * *factor)); });
    rewriter.replaceOp(fusion, fusion.getInputs());
    ++count;
    return success();
  }
};

/// A fusion that multiplies an FP32 result of 8-bit operands by both operands' scales, and rounds it or not, goes.
struct FoldOperandScales : CountingPattern<GemmOp> {
  using CountingPattern::CountingPattern;

  /// The two scalars by whose product `fusion` multiplies `argument`, where it does nothing else but round.
  static std::optional<std::pair<Value, Value>> scalesOf(FusionOp fusion, BlockArgument argument) {
    Value scaled = onlyResult(fusion);
    if (auto cast = scaled ? scaled.getDefiningOp<CastOp>() : CastOp(); cast && isRounded(cast.getY()))
      scaled = cast.getX();
    Value factor = factorOf(scaled, argument);
    auto broadcast = factor ? factor.getDefiningOp<BroadcastOp>() : BroadcastOp();
    auto both = broadcast ? broadcast.getX().getDefiningOp<MulOp>() : MulOp();
    if (!both || !argument.hasOneUse())
      return std::nullopt;
    Value scales[2];
    for (auto [scale, operand] : llvm::zip_equal(scales, both->getOperands())) {
      auto scalar = dyn_cast<BlockArgument>(operand);
      if (!scalar || !isF32Scalar(operand))
        return std::nullopt;
      scale = fusion.getInputs()[scalar.getArgNumber()];
    }
    return std::make_pair(scales[0], scales[1]);
  }

  LogicalResult matchAndRewrite(GemmOp gemm, PatternRewriter &rewriter) const override {
    if (!GemmOp::takesFloat8(tensorType(gemm.getA()), tensorType(gemm.getB())) || !gemm.getOperandScales().empty())
      return rewriter.notifyMatchFailure(gemm,
                                         "not an 8-bit GEMM: expected unscaled 8-bit operands, not E5M2 both, with "
                                         "extents in sixteens");
    auto fusion = onlyReader<FusionOp>(gemm.getD());
    auto scales = fusion ? scalesOf(fusion, argumentOf(fusion, gemm.getD())) : std::nullopt;
    if (!scales)
      return rewriter.notifyMatchFailure(
          gemm, "no operand scales: expected one reader, which multiplies by two FP32 scalars and rounds");
    rewriter.moveOpBefore(gemm, fusion); // the scales are there by then
    rewriter.modifyOpInPlace(gemm, [&] {
      // Which of the two is whose does not matter: both multiply the sums.
      gemm.getOperandScalesMutable().assign(ValueRange{scales->first, scales->second});
      gemm.getD().setType(tensorType(fusion.getOutputs()[0]));
    });
    rewriter.replaceOp(fusion, gemm.getD());
    ++count;
    return success();
  }
};

/// A fusion that multiplies an FP32 result of f16 operands by a scalar and rounds it to f16, as scales by layer do,
/// goes; so does one that multiplies a result of 8-bit operands by both operands' scales, and rounds it or not.
struct FoldResultScale : CountingPattern<GemmOp> {
  using CountingPattern::CountingPattern;

  static bool areBytes(GemmOp gemm) {
    return llvm::all_of(ValueRange{gemm.getA(), gemm.getB()}, [](Value x) {
      return isa<FloatType>(elementOf(x)) && elementOf(x).getIntOrFloatBitWidth() == 8;
    });
  }

  /// The scalars by whose product `fusion` multiplies `argument`, where it does nothing else but round; none otherwise.
  static SmallVector<Value> scalesOf(GemmOp gemm, FusionOp fusion, BlockArgument argument) {
    if (areBytes(gemm)) {
      auto both = FoldOperandScales::scalesOf(fusion, argument);
      return both ? SmallVector<Value>{both->first, both->second} : SmallVector<Value>();
    }
    Value result = onlyResult(fusion);
    auto cast = result && fusion.getInputs().size() == 2 ? result.getDefiningOp<CastOp>() : CastOp();
    BlockArgument scalar = cast ? scalarArgument(factorOf(cast.getX(), argument)) : BlockArgument();
    if (!scalar || !elementOf(cast.getY()).isF16())
      return {};
    return {fusion.getInputs()[scalar.getArgNumber()]};
  }

  static Value productOf(ArrayRef<Value> scales, OpBuilder &builder, Location loc) {
    if (scales.size() == 1)
      return scales.front();
    auto fusion = FusionOp::create(builder, loc, TypeRange{scales.front().getType()}, ValueRange(scales));
    OpBuilder::InsertionGuard guard(builder);
    Block *body = builder.createBlock(&fusion.getBody(), {}, fusion.getInputs().getTypes(), {loc, loc});
    Value product = MulOp::create(builder, loc, body->getArgument(0), body->getArgument(1));
    YieldOp::create(builder, loc, product);
    return fusion.getOutputs()[0];
  }

  LogicalResult matchAndRewrite(GemmOp gemm, PatternRewriter &rewriter) const override {
    bool halves = elementOf(gemm.getA()).isF16() && elementOf(gemm.getB()).isF16();
    if (!(halves || areBytes(gemm)) || !elementOf(gemm.getD()).isF32() || gemm.getBias() || gemm.getScale() ||
        !gemm.getOperandScales().empty() || !gemm.getForm().isNone())
      return rewriter.notifyMatchFailure(
          gemm, "not a GEMM to scale: expected f16 or 8-bit operands, an FP32 result, no epilogue or scale");
    SmallVector<Operation *> chain{gemm};
    while (chain.back()->hasOneUse() && isOperandView(*chain.back()->user_begin()))
      chain.push_back(*chain.back()->user_begin());
    Value result = chain.back()->getResult(0);
    auto fusion = onlyReader<FusionOp>(result);
    SmallVector<Value> scales;
    if (fusion)
      scales = scalesOf(gemm, fusion, argumentOf(fusion, result));
    if (scales.empty())
      return rewriter.notifyMatchFailure(
          gemm, "no result scale: expected one reader, which multiplies by an FP32 scalar and rounds to f16, or by "
                "those of both 8-bit operands");
    Type type = elementOf(fusion.getOutputs()[0]);
    rewriter.setInsertionPoint(fusion);
    Value scale = productOf(scales, rewriter, fusion.getLoc());
    for (Operation *op : chain) {
      rewriter.moveOpBefore(op, fusion); // the scale is there by then
      rewriter.modifyOpInPlace(op, [&] { op->getResult(0).setType(tensorType(op->getResult(0)).clone(type)); });
    }
    rewriter.modifyOpInPlace(gemm, [&] { gemm.getScaleMutable().assign(scale); });
    rewriter.replaceOp(fusion, result);
    ++count;
    return success();
  }
};

struct FoldScales : mpt::impl::FoldScalesBase<FoldScales> {
  using FoldScalesBase::FoldScalesBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      // The scales of operands first: a constant factor behind them would take their place.
      if ((operandScales && failed(applyInOrder<GemmOp, FoldOperandScales>(function, DEBUG_TYPE, numFolded))) ||
          (alphaScales && failed(applyInOrder<FusionOp, FoldAlpha>(function, DEBUG_TYPE, numFolded))) ||
          (resultScales && failed(applyInOrder<GemmOp, FoldResultScale>(function, DEBUG_TYPE, numFolded))))
        return signalPassFailure();
    }
  }
};

} // namespace
