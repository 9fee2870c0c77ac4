// SPDX-License-Identifier: Apache-2.0
// --import-recognize-composites: chains of elementwise ops that exporters write for GELU, SiLU and RMS normalization
// become the composite again, which keeps FP32 internals and has its own gradient.
// Matcher: GELU, SiLU and RMS normalization in the elementwise ops that exporters write them with.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Support/Refusal.h"
#include "passes/import/Passes.h"

#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

#include <cmath>

namespace mpt {
#define GEN_PASS_DEF_RECOGNIZECOMPOSITES
#include "passes/import/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

#define DEBUG_TYPE "import-recognize-composites"

/// `want` as a type of 16 bits holds it.
static double rounded(double want, const llvm::fltSemantics &type) {
  APFloat number(want);
  bool losesInfo;
  number.convert(type, APFloat::rmNearestTiesToEven, &losesInfo);
  return number.convertToDouble();
}

/// Roots and the like are taken as files write them: in some six digits, or rounded to 16 bits. Numbers that FP32 holds
/// are exact.
static bool isNumber(Value value, double want) {
  std::optional<double> number = splatNumber(value);
  if (!number || *number == want || want == static_cast<float>(want))
    return number == want;
  return std::fabs(*number - want) <= 2e-5 * std::fabs(want) || *number == rounded(want, APFloat::IEEEhalf()) ||
         *number == rounded(want, APFloat::BFloat());
}

/// The other operand of a commutative op that has the number `want` as one operand.
template <typename Op> static Value besideNumber(Value value, double want) {
  auto op = value.getDefiningOp<Op>();
  if (!op)
    return {};
  if (isNumber(op.getRhs(), want))
    return op.getLhs();
  return isNumber(op.getLhs(), want) ? op.getRhs() : Value();
}

/// value times `factor`, written as a product or as a division by its inverse.
static Value scaledBy(Value value, double factor) {
  if (Value x = besideNumber<MulOp>(value, factor))
    return x;
  auto div = value.getDefiningOp<DivOp>();
  return div && isNumber(div.getRhs(), 1 / factor) ? div.getLhs() : Value();
}

/// x^3, as x x x in any order.
static bool isCube(Value value, Value x) {
  auto mul = value.getDefiningOp<MulOp>();
  if (!mul)
    return false;
  auto isSquare = [&](Value v) {
    auto square = v.getDefiningOp<MulOp>();
    return square && square.getLhs() == x && square.getRhs() == x;
  };
  return (mul.getLhs() == x && isSquare(mul.getRhs())) || (mul.getRhs() == x && isSquare(mul.getLhs()));
}

/// The form of GELU for which `value` is 1 + erf(x / sqrt 2) or 1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)).
static std::optional<GeluForm> gateOf(Value value, Value x) {
  Value inner = besideNumber<AddOp>(value, 1);
  if (!inner)
    return std::nullopt;
  if (auto erf = inner.getDefiningOp<ErfOp>())
    return scaledBy(erf.getX(), M_SQRT1_2) == x ? std::optional(GeluForm::erf) : std::nullopt;
  auto tanh = inner.getDefiningOp<TanhOp>();
  Value sum = tanh ? scaledBy(tanh.getX(), std::sqrt(2 / M_PI)) : Value();
  auto add = sum ? sum.getDefiningOp<AddOp>() : AddOp();
  if (!add)
    return std::nullopt;
  Value cubic = add.getLhs() == x ? add.getRhs() : add.getRhs() == x ? add.getLhs() : Value();
  Value cube = cubic ? scaledBy(cubic, 0.044715) : Value();
  return cube && isCube(cube, x) ? std::optional(GeluForm::tanh) : std::nullopt;
}

namespace {
/// 0.5 x gate, in any association of the three factors.
struct Gelu : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MulOp op, PatternRewriter &rewriter) const override {
    auto replace = [&](Value x, GeluForm form) {
      rewriter.replaceOp(op, GeluOp::create(rewriter, op.getLoc(), x, form));
      return success();
    };
    auto tryProduct = [&](Value product) -> LogicalResult {
      auto mul = product ? product.getDefiningOp<MulOp>() : MulOp();
      if (!mul)
        return failure();
      for (auto [x, gate] : {std::pair(mul.getLhs(), mul.getRhs()), std::pair(mul.getRhs(), mul.getLhs())})
        if (std::optional<GeluForm> form = gateOf(gate, x))
          return replace(x, *form);
      return failure();
    };
    if (succeeded(tryProduct(scaledBy(op.getResult(), 0.5))))
      return success();
    for (auto [half, other] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
      Value inner = scaledBy(half, 0.5);
      if (!inner)
        continue;
      // (0.5 x) gate and x (0.5 gate)
      if (std::optional<GeluForm> form = gateOf(other, inner))
        return replace(inner, *form);
      if (std::optional<GeluForm> form = gateOf(inner, other))
        return replace(other, *form);
    }
    return rewriter.notifyMatchFailure(op, "not GELU: expected x/2 (1 + erf(x / sqrt 2)) or its tanh form");
  }
};

/// x sigmoid(x).
struct Silu : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(MulOp op, PatternRewriter &rewriter) const override {
    for (auto [x, gate] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
      auto sigmoid = gate.getDefiningOp<SigmoidOp>();
      if (!sigmoid || sigmoid.getX() != x)
        continue;
      rewriter.replaceOp(op, SwishOp::create(rewriter, op.getLoc(), x.getType(), x, rewriter.getF64FloatAttr(1)));
      return success();
    }
    return rewriter.notifyMatchFailure(op, "not SiLU: expected x sigmoid(x)");
  }
};

/// scale (x / sqrt(mean(x^2) + epsilon)), the mean over the last axis, scale along it.
struct RMSNorm : OpRewritePattern<MulOp> {
  using OpRewritePattern::OpRewritePattern;

  /// Whether `value` at [i..., j] is made of element [i...] of `rows` alone, by functions and the views between.
  static bool repeatsRows(Value value, Value rows) {
    SmallVector<Operation *> views;
    for (Value next = value; next != rows;) {
      Operation *op = next.getDefiningOp();
      if (isa<BroadcastOp, ReshapeOp>(op))
        views.push_back(op);
      next = op->getOperand(isa<DivOp>(op) ? 1 : 0);
    }
    // The axis of `rows` that each axis follows.
    constexpr int64_t none = -1;
    SmallVector<int64_t> follows = axisRange(0, tensorType(rows).getRank());
    for (Operation *view : llvm::reverse(views)) {
      ArrayRef<int64_t> from = tensorType(view->getOperand(0)).getShape(),
                        to = tensorType(view->getResult(0)).getShape();
      SmallVector<int64_t> behind(to.size(), none);
      if (auto broadcast = dyn_cast<BroadcastOp>(view)) {
        for (auto [axis, dim] : llvm::enumerate(broadcast.getDims()))
          behind[dim] = from[axis] == to[dim] ? follows[axis] : none;
      } else {
        auto isLong = [](ArrayRef<int64_t> shape) {
          return llvm::make_filter_range(llvm::seq<size_t>(0, shape.size()),
                                         [shape](size_t i) { return shape[i] != 1; });
        };
        SmallVector<size_t> before(isLong(from)), after(isLong(to));
        if (before.size() != after.size())
          return false;
        for (auto [source, axis] : llvm::zip_equal(before, after)) {
          if (from[source] != to[axis])
            return false;
          behind[axis] = follows[source];
        }
      }
      follows = std::move(behind);
    }
    ArrayRef<int64_t> shape = tensorType(value).getShape();
    for (auto [axis, followed] : llvm::enumerate(follows))
      if (shape[axis] != 1 && followed != (axis + 1 == shape.size() ? none : static_cast<int64_t>(axis)))
        return false;
    return true;
  }

  /// x and epsilon when `value` is the inverse root mean square, repeated along the last axis.
  static std::optional<std::pair<Value, double>> inverseOf(Value value) {
    Value whole = value;
    while (value.getDefiningOp() && isa<BroadcastOp, ReshapeOp>(value.getDefiningOp()))
      value = value.getDefiningOp()->getOperand(0);
    Value sum;
    if (auto rsqrt = value.getDefiningOp<RsqrtOp>())
      sum = rsqrt.getX();
    else if (auto reciprocal = value.getDefiningOp<ReciprocalOp>())
      if (auto sqrt = reciprocal.getX().getDefiningOp<SqrtOp>())
        sum = sqrt.getX();
    if (auto div = value.getDefiningOp<DivOp>(); div && isNumber(div.getLhs(), 1))
      if (auto sqrt = div.getRhs().getDefiningOp<SqrtOp>())
        sum = sqrt.getX();
    auto add = sum ? sum.getDefiningOp<AddOp>() : AddOp();
    std::optional<double> epsilon = add ? splatNumber(add.getRhs()) : std::nullopt;
    Value mean = add ? add.getLhs() : Value();
    while (mean && mean.getDefiningOp<ReshapeOp>())
      mean = mean.getDefiningOp()->getOperand(0);
    auto reduce = mean ? mean.getDefiningOp<ReduceOp>() : ReduceOp();
    auto square = reduce ? reduce.getX().getDefiningOp<MulOp>() : MulOp();
    if (!epsilon || !square || square.getLhs() != square.getRhs() || reduce.getKind() != ReduceKind::mean ||
        reduce.getAxes() != ArrayRef<int64_t>{tensorType(square).getRank() - 1} || !repeatsRows(whole, reduce.getY()))
      return std::nullopt;
    return std::pair(square.getLhs(), *epsilon);
  }

  LogicalResult matchAndRewrite(MulOp op, PatternRewriter &rewriter) const override {
    int64_t rank = tensorType(op).getRank();
    for (auto [affine, normal] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())}) {
      auto broadcast = affine.getDefiningOp<BroadcastOp>();
      auto product = normal.getDefiningOp<MulOp>();
      if (!broadcast || !product || broadcast.getDims() != ArrayRef<int64_t>{rank - 1} ||
          tensorType(broadcast.getX()).getDimSize(0) != tensorType(op).getDimSize(rank - 1))
        continue;
      for (auto [x, inverse] :
           {std::pair(product.getLhs(), product.getRhs()), std::pair(product.getRhs(), product.getLhs())}) {
        auto found = inverseOf(inverse);
        if (!found || found->first != x)
          continue;
        auto norm = RMSNormOp::create(rewriter, op.getLoc(), x, broadcast.getX(), rewriter.getI64IntegerAttr(rank - 1),
                                      rewriter.getF64FloatAttr(found->second));
        rewriter.replaceOp(op, norm.getY());
        return success();
      }
    }
    return rewriter.notifyMatchFailure(
        op, "not RMS normalization: expected scale x / sqrt(mean(x^2) + epsilon) over the last axis");
  }
};

struct RecognizeComposites : mpt::impl::RecognizeCompositesBase<RecognizeComposites> {
  void runOnOperation() override {
    // A training step is taken literally, rounding by rounding: a composite would round elsewhere.
    if (hasAttr<MPTDialect::StepAttrHelper>(getOperation()))
      return;
    RewritePatternSet patterns(&getContext());
    patterns.add<Gelu, Silu, RMSNorm>(&getContext());
    // Folding and block merging stay off: this pass changes recognized composites and nothing else.
    GreedyRewriteConfig config;
    RefusalListener refusals(DEBUG_TYPE);
    config.enableFolding(false).enableConstantCSE(false).setListener(&refusals);
    if (failed(applyPatternsGreedily(getOperation(), std::move(patterns), config)))
      signalPassFailure();
  }
};
} // namespace
