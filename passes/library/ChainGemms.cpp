// SPDX-License-Identifier: Apache-2.0
// --library-chain-gemms: GELU, its gradient and bias gradients become parts of the GEMMs beside them.
// Matcher: a GELU, its gradient or a sum, with the matrix multiplication that feeds it or reads the same matrix.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Library/Matching.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_CHAINGEMMS
#include "passes/library/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "library-chain-gemms"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

bool isNarrow(Value value) { return elementOf(value).isF16() || elementOf(value).isBF16(); }

/// A multiplication of two matrices of one 16-bit type, without batch dimensions.
bool isNarrowMatMul(MatMulOp matmul) {
  return tensorType(matmul.getY()).getRank() == 2 && isNarrow(matmul.getA()) &&
         elementOf(matmul.getA()) == elementOf(matmul.getB()) &&
         tensorType(matmul.getA()).getDimSize(matmul.getTransposeA() ? 0 : 1) > 1;
}

/// The multiplication whose result is `value`, perhaps in another shape with the same columns, if it has one reader.
/// Its columns are a multiple of `unit`. Refusals are reported on `op`.
FailureOr<MatMulOp> matmulBefore(Operation *op, Value value, int64_t unit, PatternRewriter &rewriter) {
  Value result = value;
  if (auto reshape = value.getDefiningOp<ReshapeOp>())
    result = reshape.getX();
  auto matmul = result.getDefiningOp<MatMulOp>();
  if (!matmul || !isNarrowMatMul(matmul) || elementOf(result) != elementOf(matmul.getA()))
    return rewriter.notifyMatchFailure(
        op, "no GEMM before it: expected a multiplication of two matrices and a result of one 16-bit type");
  if (!value.hasOneUse() || !result.hasOneUse())
    return rewriter.notifyMatchFailure(op, "result of the GEMM is not its own: expected one reader");
  int64_t columns = tensorType(value).getRank() ? tensorType(value).getShape().back() : 0;
  if (tensorType(result).getShape().back() != columns || columns % unit != 0)
    return rewriter.notifyMatchFailure(op, [&](Diagnostic &reason) {
      reason << "columns of the GEMM do not fit: expected the same multiple of " << unit
             << " before and after the reshape, got " << tensorType(result) << " and " << tensorType(value);
    });
  return matmul;
}

/// `value` in the shape that `like` has.
Value reshaped(PatternRewriter &rewriter, Location loc, Value value, Value like) {
  if (value.getType() == like.getType())
    return value;
  return ReshapeOp::create(rewriter, loc, like.getType(), value);
}

/// GELU, and the bias before it, become the epilogue of the GEMM that feeds them. The sum before the activation is kept
/// for whoever else reads it.
struct ChainGelu : CountingPattern<GeluOp> {
  ChainGelu(MLIRContext *context, Pass::Statistic &count, int64_t unit) : CountingPattern(context, count), unit(unit) {}
  int64_t unit; ///< of columns

  /// The vector along the columns that `add` adds, and its other operand.
  static std::pair<Value, Value> splitBias(AddOp add) {
    Value sum = add.getLhs();
    auto broadcast = add.getRhs().getDefiningOp<BroadcastOp>();
    if (!broadcast) {
      broadcast = add.getLhs().getDefiningOp<BroadcastOp>();
      sum = add.getRhs();
    }
    RankedTensorType type = tensorType(add.getY());
    bool columns = broadcast && tensorType(broadcast.getX()).getRank() == 1 &&
                   broadcast.getDims() == ArrayRef<int64_t>{type.getRank() - 1} &&
                   tensorType(broadcast.getX()).getDimSize(0) == type.getShape().back();
    return columns ? std::make_pair(broadcast.getX(), sum) : std::make_pair(Value(), Value());
  }

  LogicalResult matchAndRewrite(GeluOp gelu, PatternRewriter &rewriter) const override {
    if (gelu.getForm() != GeluForm::tanh)
      return rewriter.notifyMatchFailure(gelu, "not in cuBLASLt: expected the tanh form of GELU, got erf");
    SmallVector<OpOperand *> uses;
    collectUses(gelu.getY(), uses);
    // Ops of a kernel on the activation in the same pass over memory would be a pass of their own.
    if (!llvm::all_of(uses, [](OpOperand *use) { return isa<GemmLike, func::ReturnOp>(use->getOwner()); }))
      return rewriter.notifyMatchFailure(gelu,
                                         "activation is read by a kernel: expected readers that are library calls");
    Value x = gelu.getX(), sum = x, bias;
    if (auto add = x.getDefiningOp<AddOp>()) {
      std::tie(bias, sum) = splitBias(add);
      if (!bias)
        return rewriter.notifyMatchFailure(gelu, "not a bias: expected a vector along the columns before GELU");
    }
    FailureOr<MatMulOp> matmul = matmulBefore(gelu, sum, unit, rewriter);
    if (failed(matmul))
      return failure();
    if (bias && !makeAvailable(bias, *matmul, rewriter))
      return rewriter.notifyMatchFailure(gelu, "bias is not there yet: expected one that is made before the GEMM");
    bool keep = bias && !x.hasOneUse();
    rewriter.setInsertionPoint(*matmul);
    auto form = EpilogueAttr::none(getContext()).withActivation(Activation::gelu_tanh).withKeep(keep);
    auto gemm = GemmOp::create(rewriter, matmul->getLoc(), *matmul, Type(), form, bias);
    if (keep)
      rewriter.replaceAllUsesExcept(x, reshaped(rewriter, gelu.getLoc(), gemm.getKept(), x), gelu);
    rewriter.replaceOp(gelu, reshaped(rewriter, gelu.getLoc(), gemm.getD(), gelu.getY()));
    eraseIfDead(x.getDefiningOp(), rewriter);
    ++count;
    return success();
  }
};

/// GELU's gradient becomes the epilogue of the GEMM that makes the activation's gradient, at the sum that the forward
/// GEMM kept.
struct ChainGeluGradient : CountingPattern<GeluBackwardOp> {
  ChainGeluGradient(MLIRContext *context, Pass::Statistic &count, int64_t unit)
      : CountingPattern(context, count), unit(unit) {}
  int64_t unit; ///< of columns

  LogicalResult matchAndRewrite(GeluBackwardOp gelu, PatternRewriter &rewriter) const override {
    FailureOr<MatMulOp> matmul = matmulBefore(gelu, gelu.getLhs(), unit, rewriter);
    if (failed(matmul))
      return failure();
    if (gelu.getForm() != GeluForm::tanh)
      return rewriter.notifyMatchFailure(gelu, "not in cuBLASLt: expected the tanh form of GELU, got erf");
    Value kept = rootOf(gelu.getRhs());
    auto forward = kept.getDefiningOp<GemmOp>();
    if (!forward || kept != forward.getKept() || !forward->isBeforeInBlock(*matmul))
      return rewriter.notifyMatchFailure(gelu, "sum is not in memory: expected one that an earlier GEMM keeps");
    rewriter.setInsertionPoint(*matmul);
    auto form = EpilogueAttr::none(getContext()).withActivation(Activation::gelu_tanh_gradient);
    Value aux = reshaped(rewriter, gelu.getLoc(), kept, matmul->getY()), gradient = gelu.getLhs();
    auto gemm = GemmOp::create(rewriter, matmul->getLoc(), *matmul, Type(), form, Value(), aux);
    rewriter.replaceOp(gelu, reshaped(rewriter, gelu.getLoc(), gemm.getD(), gelu.getY()));
    eraseIfDead(gradient.getDefiningOp(), rewriter);
    ++count;
    return success();
  }
};

/// A sum down the columns of a matrix comes with a GEMM that reads the matrix along them too, where nothing else passes
/// over it. The library stores sums in the type of its result: one that only conversions to FP32 read becomes FP32.
struct ChainSum : CountingPattern<ReduceOp> {
  using CountingPattern::CountingPattern;

  /// Nothing but `reduce` and library calls read the matrix, and these only as a factor.
  static bool isReadByCalls(Value matrix, ReduceOp reduce) {
    SmallVector<OpOperand *> uses;
    collectUses(matrix, uses);
    return llvm::all_of(uses, [&](OpOperand *use) {
      if (use->getOwner() == reduce)
        return true;
      auto gemm = dyn_cast<GemmOp>(use->getOwner());
      GemmSum own = use->getOperandNumber() == 0 ? GemmSum::a : GemmSum::b;
      return isa<GemmLike>(use->getOwner()) &&
             (!gemm || (use->getOperandNumber() < 2 && gemm.getForm().getSum() != own));
    });
  }

  /// Which operand of `matmul` is `x` with its columns summed over the contracted dimension.
  static GemmSum summedOperand(MatMulOp matmul, Value x, int64_t columns) {
    auto isSummed = [&](Value operand) {
      auto view = operand.getDefiningOp<ReshapeOp>();
      return (operand == x || (view && view.getX() == x)) && tensorType(operand).getShape().back() == columns;
    };
    bool first = matmul.getTransposeA() && isSummed(matmul.getA());
    bool second = !matmul.getTransposeB() && isSummed(matmul.getB());
    return first == second ? GemmSum::none : first ? GemmSum::a : GemmSum::b;
  }

  /// Conversions of the result to the type of the sums, where it may be stored in that instead: all of its readers.
  /// Fails where the result has to stay as it is and has another type.
  static FailureOr<SmallVector<CastOp>> conversions(MatMulOp matmul, Type sums, int64_t mostBytes) {
    SmallVector<CastOp> casts;
    if (elementOf(matmul.getY()) == sums)
      return casts;
    for (Operation *user : matmul->getUsers()) {
      auto cast = dyn_cast<CastOp>(user);
      if (!cast || !elementOf(cast.getY()).isF32())
        return failure();
      casts.push_back(cast);
    }
    // The cost of storing it in FP32: being written, and being read by each conversion.
    int64_t more = countOf(matmul.getY()) * 2 * static_cast<int64_t>(casts.size() + 1);
    if (!sums.isF32() || casts.empty() || more >= mostBytes)
      return failure();
    return casts;
  }

  /// The GEMM can run where the sum is read first: `matmul` moves before `reduce`.
  static bool moveBefore(ReduceOp reduce, MatMulOp matmul, GemmSum sum, PatternRewriter &rewriter) {
    if (matmul->isBeforeInBlock(reduce))
      return true;
    Value operand = sum == GemmSum::a ? matmul.getA() : matmul.getB();
    Operation *other = (sum == GemmSum::a ? matmul.getB() : matmul.getA()).getDefiningOp();
    if (other && !other->isBeforeInBlock(reduce))
      return false;
    if (Operation *view = operand.getDefiningOp(); view && !view->isBeforeInBlock(reduce))
      rewriter.moveOpBefore(view, reduce);
    rewriter.moveOpBefore(matmul, reduce);
    return true;
  }

  void replace(ReduceOp reduce, MatMulOp matmul, GemmSum sum, ArrayRef<CastOp> casts, PatternRewriter &rewriter) const {
    Type element = elementOf(reduce.getY());
    rewriter.setInsertionPoint(matmul);
    auto gemm = GemmOp::create(rewriter, matmul.getLoc(), matmul, tensorType(matmul.getY()).clone(element),
                               EpilogueAttr::none(getContext()).withSum(sum));
    if (NumericsAttr numerics = matmul.getNumericsAttr(); numerics && !casts.empty())
      gemm.setNumericsAttr(NumericsAttr::get(getContext(), numerics.getIn(), numerics.getAcc(), element));
    for (CastOp cast : casts)
      rewriter.replaceOp(cast, gemm.getD());
    if (casts.empty())
      rewriter.replaceAllUsesWith(matmul.getY(), gemm.getD());
    rewriter.eraseOp(matmul);
    rewriter.replaceOp(reduce, gemm.getSums());
  }

  LogicalResult matchAndRewrite(ReduceOp reduce, PatternRewriter &rewriter) const override {
    Value x = reduce.getX();
    RankedTensorType type = tensorType(x), sums = tensorType(reduce.getY());
    if (reduce.getKind() != ReduceKind::sum || !isNarrow(x) || sums.getRank() != 1 ||
        reduce.getAxes() != ArrayRef<int64_t>(axisRange(0, type.getRank() - 1)))
      return rewriter.notifyMatchFailure(reduce,
                                         "not a bias gradient: expected sums down the columns of a 16-bit matrix");
    Value root = rootOf(x);
    Operation *source = root.getDefiningOp();
    if (source && !isa<ConcatOp>(source) && (isa<LoopLowering>(source) || isa<Decomposable>(source)))
      return rewriter.notifyMatchFailure(reduce, "matrix is made by a kernel: expected a library call before the sum");
    if (!isReadByCalls(root, reduce))
      return rewriter.notifyMatchFailure(reduce, "matrix is read by a kernel: expected readers that are library calls");
    SmallVector<OpOperand *> uses;
    collectUses(root, uses);
    for (OpOperand *use : uses) {
      auto matmul = dyn_cast<MatMulOp>(use->getOwner());
      GemmSum sum = matmul && isNarrowMatMul(matmul) ? summedOperand(matmul, x, sums.getDimSize(0)) : GemmSum::none;
      if (sum == GemmSum::none)
        continue;
      FailureOr<SmallVector<CastOp>> casts = conversions(matmul, sums.getElementType(), bytesOf(x));
      if (failed(casts)) {
        refuse(DEBUG_TYPE, matmul) << "result cannot have the type of the sums: expected conversions to "
                                   << sums.getElementType() << " alone as readers, of a result small beside the matrix";
        continue;
      }
      if (!moveBefore(reduce, matmul, sum, rewriter)) {
        refuse(DEBUG_TYPE, matmul) << "GEMM runs too late: expected its operands before the first reader of the sums";
        continue;
      }
      replace(reduce, matmul, sum, *casts, rewriter);
      ++count;
      return success();
    }
    return rewriter.notifyMatchFailure(reduce, "no GEMM beside it: expected one that contracts the summed dimension");
  }
};

struct ChainGemms : mpt::impl::ChainGemmsBase<ChainGemms> {
  using ChainGemmsBase::ChainGemmsBase;
  void runOnOperation() override {
    // Gradients need values that activations keep; sums are of results of gradients.
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() &&
          (failed(applyInOrder<GeluOp, ChainGelu>(function, DEBUG_TYPE, numChained, columnUnit)) ||
           failed(applyInOrder<GeluBackwardOp, ChainGeluGradient>(function, DEBUG_TYPE, numChained, columnUnit)) ||
           failed(applyInOrder<ReduceOp, ChainSum>(function, DEBUG_TYPE, numChained))))
        return signalPassFailure();
  }
};

} // namespace
