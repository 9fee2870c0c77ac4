// SPDX-License-Identifier: Apache-2.0
// Reshapes and transposes moved off the ops of attention.
// Matcher: softmax, its gradient, scales, casts, masks and dropout beside them, the GEMMs and the views between.
#include "mpt/Library/HeadViews.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/Simplify.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;

static bool isSoftmax(Operation *op) { return isa_and_nonnull<SoftmaxOp, SoftmaxBackwardOp>(op); }

bool mpt::isCarried(Operation *op) {
  return op && op->getNumResults() == 1 &&
         (op->hasTrait<OpTrait::Elementwise>() || isa<CastOp, DropoutOp>(op) || isSoftmax(op));
}
bool mpt::isView(Operation *op) { return isa_and_nonnull<ReshapeOp, TransposeOp>(op); }

namespace {

/// `axis` of a softmax or its gradient; the last one of anything else.
int64_t axisOf(Operation *op) {
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    return static_cast<int64_t>(softmax.getAxis());
  if (auto gradient = dyn_cast<SoftmaxBackwardOp>(op))
    return static_cast<int64_t>(gradient.getAxis());
  return rankOf(op->getResult(0)) - 1;
}
void setAxis(Operation *op, int64_t axis) {
  if (auto softmax = dyn_cast<SoftmaxOp>(op))
    softmax.setAxis(axis);
  if (auto gradient = dyn_cast<SoftmaxBackwardOp>(op))
    gradient.setAxis(axis);
}

/// Whether an operand of `op` has an element for each of its result; generators' keys have not.
bool isFull(OpOperand &operand) { return shapeOf(operand.get()) == shapeOf(operand.getOwner()->getResult(0)); }

/// `op` on `moved` operands in `shape`, without its attributes of shapes.
Operation *inShape(PatternRewriter &rewriter, Operation *op, ArrayRef<Value> moved, ArrayRef<int64_t> shape) {
  Operation *copy = rewriter.clone(*op);
  copy->setOperands(moved);
  copy->getResult(0).setType(tensorType(op->getResult(0)).clone(shape));
  return copy;
}

/// `op`, whose last dimension stays, in `shape`, and reshapes around it.
void reshapeOp(PatternRewriter &rewriter, Operation *op, ArrayRef<int64_t> shape) {
  GraphBuilder b(rewriter, op->getLoc());
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands())
    operands.push_back(isFull(operand) ? b.reshape(operand.get(), shape) : operand.get());
  SmallVector<int64_t> before(shapeOf(op->getResult(0)));
  Operation *copy = inShape(rewriter, op, operands, shape);
  setAxis(copy, static_cast<int64_t>(shape.size()) - 1);
  rewriter.replaceOp(op, b.reshape(copy->getResult(0), before));
}

/// Whether `op` may have `shape`: it has other dimensions, but the same last one, along which alone it looks.
bool canTake(Operation *op, ArrayRef<int64_t> shape) {
  ArrayRef<int64_t> own = shapeOf(op->getResult(0));
  return isCarried(op) && static_cast<int64_t>(shape.size()) == splitRank && own.size() > 1 &&
         own.size() != shape.size() && own.back() == shape.back() && axisOf(op) == static_cast<int64_t>(own.size()) - 1;
}

/// op(reshape(x)), with x of four dimensions -> reshape(op(x)).
struct BelowReshape : RewritePattern {
  explicit BelowReshape(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isCarried(op))
      return failure();
    for (OpOperand &operand : op->getOpOperands())
      if (auto reshape = operand.get().getDefiningOp<ReshapeOp>();
          reshape && isFull(operand) && canTake(op, shapeOf(reshape.getX()))) {
        reshapeOp(rewriter, op, SmallVector<int64_t>(shapeOf(reshape.getX())));
        return success();
      }
    return rewriter.notifyMatchFailure(op, "reads no reshape of four dimensions that keeps rows");
  }
};

/// reshape(op(x)) to four dimensions -> op(reshape(x)).
LogicalResult aboveReshape(ReshapeOp reshape, PatternRewriter &rewriter) {
  Operation *op = reshape.getX().getDefiningOp();
  if (!op || !canTake(op, shapeOf(reshape.getY())))
    return rewriter.notifyMatchFailure(reshape, "no op whose rows are kept");
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  reshapeOp(rewriter, op, SmallVector<int64_t>(shapeOf(reshape.getY())));
  return success();
}

/// Leading dimensions that `split` has in place of the one that `joined` has; empty if they differ elsewhere.
SmallVector<int64_t> leadingOf(Value split, Value joined) {
  ArrayRef<int64_t> s = shapeOf(split), j = shapeOf(joined);
  if (j.size() != 3 || static_cast<int64_t>(s.size()) != splitRank || s.take_back(2) != j.take_back(2))
    return {};
  return SmallVector<int64_t>(s.drop_back(2));
}

/// A batch of GEMMs whose batch is joined of two dimensions where operands were made, or split where results are read.
LogicalResult splitGemm(MatMulOp gemm, PatternRewriter &rewriter) {
  if (rankOf(gemm.getY()) != 3)
    return rewriter.notifyMatchFailure(gemm, "no batch of one dimension");
  SmallVector<int64_t> leading;
  for (Value operand : {gemm.getA(), gemm.getB()})
    if (auto reshape = operand.getDefiningOp<ReshapeOp>(); reshape && leading.empty())
      leading = leadingOf(reshape.getX(), operand);
  for (Operation *user : gemm.getY().getUsers())
    if (auto reshape = dyn_cast<ReshapeOp>(user); reshape && leading.empty())
      leading = leadingOf(reshape.getY(), gemm.getY());
  if (leading.empty())
    return rewriter.notifyMatchFailure(gemm, "no reshape joins or splits its batch");
  auto split = [&](Value value) {
    SmallVector<int64_t> shape(leading);
    llvm::append_range(shape, shapeOf(value).take_back(2));
    return shape;
  };
  GraphBuilder b(rewriter, gemm.getLoc());
  Operation *copy =
      inShape(rewriter, gemm, {b.reshape(gemm.getA(), split(gemm.getA())), b.reshape(gemm.getB(), split(gemm.getB()))},
              split(gemm.getY()));
  rewriter.replaceOp(gemm, b.reshape(copy->getResult(0), SmallVector<int64_t>(shapeOf(gemm.getY()))));
  return success();
}

/// Splits the first dimension of a broadcast before it repeats.
LogicalResult splitBroadcast(ReshapeOp reshape, PatternRewriter &rewriter) {
  auto broadcast = reshape.getX().getDefiningOp<BroadcastOp>();
  SmallVector<int64_t> leading = broadcast ? leadingOf(reshape.getY(), reshape.getX()) : SmallVector<int64_t>();
  if (leading.empty())
    return rewriter.notifyMatchFailure(reshape, "no broadcast whose first dimension is split");
  Value x = broadcast.getX();
  SmallVector<int64_t> shape(shapeOf(x)), dims;
  const bool hasFirst = !broadcast.getDims().empty() && broadcast.getDims().front() == 0;
  if (hasFirst) {
    const bool repeats = shape.front() == 1;
    shape.erase(shape.begin());
    if (!repeats) {
      shape.insert(shape.begin(), leading.begin(), leading.end());
      dims = {0, 1};
    }
  }
  for (int64_t dim : broadcast.getDims().drop_front(hasFirst))
    dims.push_back(dim + 1);
  GraphBuilder b(rewriter, reshape.getLoc());
  rewriter.replaceOp(reshape, b.broadcast(b.reshape(x, shape), SmallVector<int64_t>(shapeOf(reshape.getY())), dims));
  return success();
}

SmallVector<int64_t> inverseOf(ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> inverse(permutation.size());
  for (auto [to, from] : llvm::enumerate(permutation))
    inverse[from] = static_cast<int64_t>(to);
  return inverse;
}

/// The permutation that exchanges the last two of `rank` dimensions.
SmallVector<int64_t> swap(int64_t rank) {
  SmallVector<int64_t> order = axisRange(0, rank);
  std::swap(order.end()[-1], order.end()[-2]);
  return order;
}

/// Whether a transpose of `value` moves nothing that is stored in full.
bool isEasilyTransposed(Value value, ArrayRef<int64_t> permutation) {
  if (auto transpose = value.getDefiningOp<TransposeOp>())
    return transpose.getPermutation() == permutation;
  Operation *op = value.getDefiningOp();
  return isa_and_nonnull<BroadcastOp, ConstantOp>(op);
}

/// `op` on `operands`, with the dimensions of its result in the order `permutation` undoes; then transposes.
void transposeOp(PatternRewriter &rewriter, Operation *op, ArrayRef<int64_t> permutation) {
  GraphBuilder b(rewriter, op->getLoc());
  SmallVector<int64_t> undone = inverseOf(permutation), shape;
  for (int64_t from : undone)
    shape.push_back(shapeOf(op->getResult(0))[from]);
  SmallVector<Value> operands;
  for (OpOperand &operand : op->getOpOperands())
    if (auto inner = operand.get().getDefiningOp<TransposeOp>(); inner && inner.getPermutation() == permutation)
      operands.push_back(inner.getX());
    else
      operands.push_back(isFull(operand) ? b.transpose(operand.get(), undone) : operand.get());
  Operation *copy = inShape(rewriter, op, operands, shape);
  setAxis(copy, permutation[axisOf(op)]);
  rewriter.replaceOp(op, b.transpose(copy->getResult(0), permutation));
}

/// op(transpose(x)) -> transpose(op(x)), where the other operands are as easily transposed. Dropout draws by place.
struct BelowTranspose : RewritePattern {
  explicit BelowTranspose(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!isCarried(op) || isa<DropoutOp>(op))
      return failure();
    for (OpOperand &operand : op->getOpOperands()) {
      auto transpose = operand.get().getDefiningOp<TransposeOp>();
      if (!transpose || !isFull(operand))
        continue;
      SmallVector<int64_t> permutation(transpose.getPermutation());
      if (isSoftmax(op) && permutation[axisOf(op)] != rankOf(operand.get()) - 1)
        continue; // rows stay along the last dimension
      if (!llvm::all_of(op->getOpOperands(), [&](OpOperand &other) {
            return !isFull(other) || isEasilyTransposed(other.get(), permutation);
          }))
        continue;
      transposeOp(rewriter, op, permutation);
      return success();
    }
    return rewriter.notifyMatchFailure(op, "reads no transpose that could come behind it");
  }
};

/// A softmax along the last dimension but one, as one along the last.
struct AlongRows : RewritePattern {
  explicit AlongRows(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), 1, context) {}
  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    int64_t rank = isSoftmax(op) ? rankOf(op->getResult(0)) : 0;
    if (rank < 3 || axisOf(op) != rank - 2)
      return failure();
    transposeOp(rewriter, op, swap(rank));
    return success();
  }
};

/// Whether `value` holds probabilities, whatever was cast, dropped or masked in them.
bool isOfSoftmax(Value value, int depth = 0) {
  constexpr int deepest = 8;
  Operation *op = value.getDefiningOp();
  if (!op || isa<SoftmaxBackwardOp>(op) || depth > deepest)
    return false;
  return isa<SoftmaxOp>(op) || ((isCarried(op) || isView(op)) &&
                                llvm::any_of(op->getOperands(), [&](Value x) { return isOfSoftmax(x, depth + 1); }));
}

/// The transpose of a product as the product of the transposes.
Value swappedProduct(PatternRewriter &rewriter, MatMulOp gemm) {
  SmallVector<int64_t> shape(shapeOf(gemm.getY()));
  std::swap(shape.end()[-1], shape.end()[-2]);
  auto copy = cast<MatMulOp>(inShape(rewriter, gemm, {gemm.getB(), gemm.getA()}, shape));
  copy.setTransposeA(!gemm.getTransposeB());
  copy.setTransposeB(!gemm.getTransposeA());
  return copy.getY();
}

/// Probabilities become the first operand.
LogicalResult probabilitiesFirst(MatMulOp gemm, PatternRewriter &rewriter) {
  if (!isOfSoftmax(gemm.getB()) || isOfSoftmax(gemm.getA()))
    return rewriter.notifyMatchFailure(gemm, "second operand is no probabilities");
  Value product = swappedProduct(rewriter, gemm);
  rewriter.replaceOp(gemm, GraphBuilder(rewriter, gemm.getLoc()).transpose(product, swap(rankOf(product))));
  return success();
}

/// Whether a transpose of the last two dimensions may be taken into `value`: GEMMs and elementwise ops that it alone
/// reads, broadcasts and splats.
bool takesSwap(Value value, int depth = 0) {
  constexpr int deepest = 8;
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<BroadcastOp>(op) || splatNumber(value))
    return true;
  if (!op || !value.hasOneUse() || depth > deepest)
    return false;
  if (isa<MatMulOp>(op))
    return !isOfSoftmax(op->getOperand(0)) && !isOfSoftmax(op->getOperand(1));
  return (isCarried(op) && !isSoftmax(op) && !isa<DropoutOp>(op) &&
          llvm::all_of(op->getOperands(), [&](Value x) { return takesSwap(x, depth + 1); }));
}

/// transpose(broadcast(x)) -> broadcast(transpose(x)).
Value transposed(PatternRewriter &rewriter, BroadcastOp broadcast, ArrayRef<int64_t> permutation) {
  SmallVector<int64_t> order, dims, shape;
  for (auto [to, from] : llvm::enumerate(permutation)) {
    shape.push_back(shapeOf(broadcast.getY())[from]);
    if (const int64_t *place = llvm::find(broadcast.getDims(), from); place != broadcast.getDims().end()) {
      order.push_back(place - broadcast.getDims().begin());
      dims.push_back(static_cast<int64_t>(to));
    }
  }
  GraphBuilder b(rewriter, broadcast.getLoc());
  return b.broadcast(b.transpose(broadcast.getX(), order), shape, dims);
}

/// A `value` that takesSwap accepts, with its last two dimensions exchanged by `permutation`.
Value swapped(PatternRewriter &rewriter, Value value, ArrayRef<int64_t> permutation) {
  Operation *op = value.getDefiningOp();
  SmallVector<int64_t> shape(shapeOf(value));
  std::swap(shape.end()[-1], shape.end()[-2]);
  if (auto number = splatNumber(value))
    return GraphBuilder(rewriter, value.getLoc()).splat(tensorType(value).clone(shape), *number);
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return transposed(rewriter, broadcast, permutation);
  if (auto gemm = dyn_cast<MatMulOp>(op))
    return swappedProduct(rewriter, gemm);
  SmallVector<Value> operands;
  for (Value operand : op->getOperands())
    operands.push_back(swapped(rewriter, operand, permutation));
  return inShape(rewriter, op, operands, shape)->getResult(0);
}

LogicalResult aboveTranspose(TransposeOp transpose, PatternRewriter &rewriter) {
  if (auto broadcast = transpose.getX().getDefiningOp<BroadcastOp>()) {
    rewriter.replaceOp(transpose, transposed(rewriter, broadcast, transpose.getPermutation()));
    return success();
  }
  if (transpose.getPermutation() != ArrayRef<int64_t>(swap(rankOf(transpose.getY()))) || !takesSwap(transpose.getX()))
    return rewriter.notifyMatchFailure(transpose, "no GEMM that it alone reads");
  rewriter.replaceOp(transpose, swapped(rewriter, transpose.getX(), transpose.getPermutation()));
  return success();
}

/// An operand whose last dimension a transpose makes the last but one, as the operand with that dimension last: readers
/// of either form read one value then.
LogicalResult uprightOperands(MatMulOp gemm, PatternRewriter &rewriter) {
  const int64_t rank = rankOf(gemm.getY());
  auto upright = [&](OpOperand &operand) -> Value {
    auto transpose = operand.get().getDefiningOp<TransposeOp>();
    if (!transpose || transpose.getPermutation()[rank - 2] != rank - 1)
      return {};
    SmallVector<int64_t> order(transpose.getPermutation());
    std::swap(order[rank - 1], order[rank - 2]);
    return GraphBuilder(rewriter, transpose.getLoc()).transpose(transpose.getX(), order);
  };
  Value a = upright(gemm.getAMutable()), b = upright(gemm.getBMutable());
  if (!a && !b)
    return rewriter.notifyMatchFailure(gemm, "no operand whose last dimension moved");
  rewriter.modifyOpInPlace(gemm, [&] {
    if (a) {
      gemm.getAMutable().assign(a);
      gemm.setTransposeA(!gemm.getTransposeA());
    }
    if (b) {
      gemm.getBMutable().assign(b);
      gemm.setTransposeB(!gemm.getTransposeB());
    }
  });
  return success();
}

} // namespace

void mpt::populateHeadViewPatterns(RewritePatternSet &set) {
  set.add<BelowReshape, BelowTranspose, AlongRows>(set.getContext());
  set.add(aboveReshape);
  set.add(splitGemm);
  set.add(splitBroadcast);
  set.add(uprightOperands);
  set.add(probabilitiesFirst);
  set.add(aboveTranspose);
  populateViewPatterns(set);
}
