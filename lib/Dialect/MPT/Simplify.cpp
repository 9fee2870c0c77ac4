// SPDX-License-Identifier: Apache-2.0
// Simpler forms of core ops: neutral operands, shape changes in their simplest form, transposes and broadcasts that a
// matrix multiplication can take over.
#include "mpt/Dialect/MPT/Simplify.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace mpt;

/// True when every element of the constant is `value` (with its sign, for zero).
static bool isSplatOf(Attribute constant, double value) {
  auto splat = dyn_cast_or_null<SplatElementsAttr>(constant);
  if (!splat)
    return false;
  if (isa<FloatType>(splat.getElementType())) {
    APFloat element = splat.getSplatValue<APFloat>();
    return element.convertToDouble() == value && element.isNegative() == std::signbit(value);
  }
  return isa<IntegerType>(splat.getElementType()) && splat.getSplatValue<APInt>() == static_cast<int64_t>(value);
}

/// The value that adding does not change: -0 for floats, because -0 + 0 is 0.
static bool isAdditiveIdentity(Attribute constant) {
  auto elements = dyn_cast_or_null<ElementsAttr>(constant);
  return elements && isSplatOf(constant, isa<FloatType>(elements.getElementType()) ? -0.0 : 0.0);
}

/// Replaces `op` by one of its operands; fails when `value` is null.
static LogicalResult replace(Operation *op, Value value, PatternRewriter &rewriter) {
  if (!value || value.getType() != op->getResult(0).getType())
    return rewriter.notifyMatchFailure(op, "no neutral operand");
  rewriter.replaceOp(op, value);
  return success();
}

static Attribute constantOf(Value value) {
  Attribute constant;
  return matchPattern(value, m_Constant(&constant)) ? constant : Attribute();
}

static LogicalResult doubleNegation(NegOp op, PatternRewriter &rewriter) {
  auto inner = op.getX().getDefiningOp<NegOp>();
  return replace(op, inner ? inner.getX() : Value(), rewriter);
}
static LogicalResult addNothing(AddOp op, PatternRewriter &rewriter) {
  if (isAdditiveIdentity(constantOf(op.getRhs())))
    return replace(op, op.getLhs(), rewriter);
  return replace(op, isAdditiveIdentity(constantOf(op.getLhs())) ? op.getRhs() : Value(), rewriter);
}
static LogicalResult subtractNothing(SubOp op, PatternRewriter &rewriter) {
  return replace(op, isSplatOf(constantOf(op.getRhs()), 0.0) ? op.getLhs() : Value(), rewriter);
}
static LogicalResult timesOne(MulOp op, PatternRewriter &rewriter) {
  if (isSplatOf(constantOf(op.getRhs()), 1.0))
    return replace(op, op.getLhs(), rewriter);
  return replace(op, isSplatOf(constantOf(op.getLhs()), 1.0) ? op.getRhs() : Value(), rewriter);
}
static LogicalResult overOne(DivOp op, PatternRewriter &rewriter) {
  return replace(op, isSplatOf(constantOf(op.getRhs()), 1.0) ? op.getLhs() : Value(), rewriter);
}
static LogicalResult concatOfOne(ConcatOp op, PatternRewriter &rewriter) {
  return replace(op, op.getInputs().size() == 1 ? op.getInputs().front() : Value(), rewriter);
}
static LogicalResult padOfNothing(PadOp op, PatternRewriter &rewriter) {
  auto isZero = [](int64_t margin) { return margin == 0; };
  bool none =
      llvm::all_of(op.getLow(), isZero) && llvm::all_of(op.getHigh(), isZero) && llvm::all_of(op.getInterior(), isZero);
  return replace(op, none ? op.getX() : Value(), rewriter);
}

/// First powers are their base; squares are products, one rounding either way.
static LogicalResult powerOfConstant(PowOp op, PatternRewriter &rewriter) {
  Attribute exponent = constantOf(op.getRhs());
  if (isSplatOf(exponent, 1.0))
    return replace(op, op.getLhs(), rewriter);
  if (!isSplatOf(exponent, 2.0))
    return rewriter.notifyMatchFailure(op, "exponent is neither 1 nor 2");
  rewriter.replaceOpWithNewOp<MulOp>(op, op.getLhs(), op.getLhs());
  return success();
}

/// A reduction over axes of extent 1 moves nothing.
static LogicalResult reduceOfOnes(ReduceOp op, PatternRewriter &rewriter) {
  RankedTensorType x = tensorType(op.getX()), y = tensorType(op.getY());
  bool ones = llvm::all_of(op.getAxes(), [&](int64_t axis) { return x.getDimSize(axis) == 1; });
  if (!ones || x.getElementType() != y.getElementType() || op.getNumerics())
    return rewriter.notifyMatchFailure(op, "reduces or rounds");
  rewriter.replaceOpWithNewOp<ReshapeOp>(op, y, op.getX());
  return success();
}

/// A broadcast that only adds dimensions of extent 1 is a reshape; two broadcasts are one.
static LogicalResult simplerBroadcast(BroadcastOp op, PatternRewriter &rewriter) {
  RankedTensorType x = tensorType(op.getX()), y = tensorType(op.getY());
  if (x.getNumElements() == y.getNumElements()) {
    rewriter.replaceOpWithNewOp<ReshapeOp>(op, y, op.getX());
    return success();
  }
  auto inner = op.getX().getDefiningOp<BroadcastOp>();
  if (!inner)
    return rewriter.notifyMatchFailure(op, "no broadcast before it");
  SmallVector<int64_t> dims;
  for (int64_t dim : inner.getDims())
    dims.push_back(op.getDims()[dim]);
  rewriter.replaceOpWithNewOp<BroadcastOp>(op, y, inner.getX(), dims);
  return success();
}

/// A transpose that keeps the order of the dimensions larger than 1 is a reshape.
static LogicalResult transposeOfOnes(TransposeOp op, PatternRewriter &rewriter) {
  RankedTensorType x = tensorType(op.getX());
  int64_t previous = -1;
  for (int64_t from : op.getPermutation()) {
    if (x.getDimSize(from) == 1)
      continue;
    if (from < previous)
      return rewriter.notifyMatchFailure(op, "moves elements");
    previous = from;
  }
  rewriter.replaceOpWithNewOp<ReshapeOp>(op, op.getY().getType(), op.getX());
  return success();
}

/// The operand below a transpose of the last two dimensions; null without one.
static Value belowTranspose(Value operand) {
  auto transpose = operand.getDefiningOp<TransposeOp>();
  if (!transpose)
    return {};
  SmallVector<int64_t> swapped = axisRange(0, transpose.getPermutation().size());
  std::swap(swapped.end()[-1], swapped.end()[-2]);
  return transpose.getPermutation() == ArrayRef<int64_t>(swapped) ? transpose.getX() : Value();
}

static LogicalResult matmulOfTranspose(MatMulOp op, PatternRewriter &rewriter) {
  Value a = belowTranspose(op.getA()), b = belowTranspose(op.getB());
  if (!a && !b)
    return rewriter.notifyMatchFailure(op, "no transposed operand");
  rewriter.modifyOpInPlace(op, [&] {
    if (a) {
      op.getAMutable().assign(a);
      op.setTransposeA(!op.getTransposeA());
    }
    if (b) {
      op.getBMutable().assign(b);
      op.setTransposeB(!op.getTransposeB());
    }
  });
  return success();
}

/// A batch of matrix multiplications with one matrix is one of all rows; so is its gradient.
static LogicalResult matmulOfBroadcast(MatMulOp op, PatternRewriter &rewriter) {
  auto repeat = op.getB().getDefiningOp<BroadcastOp>();
  RankedTensorType a = tensorType(op.getA()), y = tensorType(op.getY());
  int64_t rank = a.getRank();
  if (!repeat || op.getTransposeA() || rank < 3)
    return rewriter.notifyMatchFailure(op, "second operand is not repeated");
  RankedTensorType one = tensorType(repeat.getX());
  ArrayRef<int64_t> dims = repeat.getDims();
  int64_t lead = one.getRank() - 2;
  if (lead < 0 || dims.take_back(2) != ArrayRef<int64_t>{rank - 2, rank - 1} ||
      one.getShape().take_back(2) != tensorType(repeat.getY()).getShape().take_back(2) ||
      llvm::any_of(one.getShape().take_front(lead), [](int64_t extent) { return extent != 1; }))
    return rewriter.notifyMatchFailure(op, "repeated in other dimensions than the batch");
  GraphBuilder b(rewriter, op.getLoc());
  Value rows = b.reshape(op.getA(), {a.getNumElements() / a.getShape().back(), a.getShape().back()});
  Value matrix = b.reshape(repeat.getX(), one.getShape().take_back(2));
  auto flat = y.clone({tensorType(rows).getDimSize(0), y.getShape().back()});
  auto product =
      MatMulOp::create(rewriter, op.getLoc(), flat, rows, matrix, false, op.getTransposeB(), op.getNumericsAttr());
  product->setDiscardableAttrs(op->getDiscardableAttrDictionary());
  rewriter.replaceOp(op, b.reshape(product, y.getShape()));
  return success();
}

void mpt::populateViewPatterns(RewritePatternSet &patterns) {
  patterns.add(simplerBroadcast);
  patterns.add(transposeOfOnes);
  patterns.add(matmulOfTranspose);
}

void mpt::populateSimplifyPatterns(RewritePatternSet &patterns) {
  patterns.add(doubleNegation);
  patterns.add(addNothing);
  patterns.add(subtractNothing);
  patterns.add(timesOne);
  patterns.add(overOne);
  patterns.add(concatOfOne);
  patterns.add(padOfNothing);
  patterns.add(powerOfConstant);
  patterns.add(reduceOfOnes);
  populateViewPatterns(patterns);
  patterns.add(matmulOfBroadcast);
}
