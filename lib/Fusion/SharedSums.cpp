// SPDX-License-Identifier: Apache-2.0
// Reductions for kernels whose threads share one sum.
// Matcher: a variance around a mean; arithmetic on one tensor and scalars between a kernel, a reshape and its
// reductions.
#include "mpt/Fusion/ReductionStages.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Support/Refusal.h"

#include "mlir/IR/IRMapping.h"

#define DEBUG_TYPE "fusion-decompose"

using namespace mlir;
using namespace mpt;

namespace {

/// Whether `op` is arithmetic at each element's own index.
bool isPlain(Operation *op) {
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering || isViewOp(op) || isReduction(op) || isBroadcast(op) || lowering.standsAlone() ||
      !lowering.isCheap() || op->getNumResults() != 1)
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    return lowering.readsOwnIndex(operand.getOperandNumber()) &&
           tensorType(operand.get()).getShape() == tensorType(op->getResult(0)).getShape();
  });
}
/// Whether `value` is a scalar that repeats.
bool isScalar(Value value) {
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return tensorType(broadcast.getX()).getNumElements() == 1 && tensorType(broadcast.getX()).getRank() == 0;
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}
/// Whether all elements become one: the shape that they are seen in does not matter.
bool reducesAll(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && tensorType(reduce.getY()).getRank() == 0;
}

/// Axes of a sum down the columns of `value` (a bias gradient); empty without one.
SmallVector<int64_t> columnAxesOf(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto cast = dyn_cast<CastOp>(user))
      if (SmallVector<int64_t> axes = columnAxesOf(cast.getY()); !axes.empty())
        return axes;
    auto reduce = dyn_cast<ReduceOp>(user);
    if (reduce && !reducesAll(reduce) && reduce.getAxes() == ArrayRef<int64_t>(axisRange(0, reduce.getAxes().size())))
      return SmallVector<int64_t>(reduce.getAxes());
  }
  return {};
}

/// See moveBeforeReshapes.
class BeforeReshapes {
public:
  explicit BeforeReshapes(func::FuncOp function) : function(function) {}
  void run() {
    for (auto reshape : llvm::make_early_inc_range(function.getOps<ReshapeOp>())) {
      Operation *source = reshape.getX().getDefiningOp();
      if ((!source || !isa<LoopLowering>(source) || isViewOp(source)) && columnAxesOf(reshape.getX()).empty())
        continue;
      for (Operation *user : usersOf(reshape.getY()))
        if (moves(user, reshape.getY(), 0))
          move(user, reshape.getY(), reshape.getX());
    }
  }

private:
  static SmallVector<Operation *> usersOf(Value value) {
    llvm::SmallSetVector<Operation *, 4> users(value.user_begin(), value.user_end());
    return users.takeVector();
  }
  bool moves(Operation *op, Value reshaped, unsigned depth) const {
    if (reducesAll(op))
      return true;
    if (depth > 8 || !isPlain(op) ||
        !llvm::all_of(op->getOperands(), [&](Value operand) { return operand == reshaped || isScalar(operand); }))
      return false;
    return llvm::all_of(op->getUsers(), [&](Operation *user) {
      return !isa<LoopLowering>(user) || isViewOp(user) || moves(user, op->getResult(0), depth + 1);
    });
  }
  void move(Operation *op, Value reshaped, Value original) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    ArrayRef<int64_t> shape = tensorType(original).getShape();
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      SmallVector<int64_t> axes = axisRange(0, static_cast<int64_t>(shape.size()));
      Value value = ReduceOp::create(builder, op->getLoc(), reduce.getY().getType(), original, reduce.getKind(), axes,
                                     reduce.getNumericsAttr());
      reduce.getY().replaceAllUsesWith(value);
      op->erase();
      return;
    }
    IRMapping mapping;
    for (Value operand : op->getOperands()) {
      if (operand == reshaped)
        mapping.map(operand, original);
      else if (auto broadcast = operand.getDefiningOp<BroadcastOp>())
        mapping.map(operand, b.broadcast(broadcast.getX(), shape, {}));
      else
        mapping.map(operand, b.constant(cast<SplatElementsAttr>(operand.getDefiningOp<ConstantOp>().getValue())
                                            .resizeSplat(tensorType(operand).clone(shape))));
    }
    Operation *copy = builder.clone(*op, mapping);
    Value result = copy->getResult(0), old = op->getResult(0);
    result.setType(tensorType(old).clone(shape));
    for (Operation *user : usersOf(old))
      if (isa<LoopLowering>(user) && !isViewOp(user))
        move(user, old, result);
    if (!old.use_empty())
      old.replaceAllUsesWith(b.reshape(result, tensorType(old).getShape()));
    op->erase();
  }
  func::FuncOp function;
};

} // namespace

std::pair<Value, Value> mpt::meanAndVariance(GraphBuilder &b, Value x, ArrayRef<int64_t> axes,
                                             function_ref<Value(Value, unsigned)> better) {
  Value wide = b.cast(x, b.builder.getF64Type());
  Value first = better(b.mean(wide, axes), 1), second = better(b.mean(b.mul(wide, wide), axes), 2);
  Value variance = b.sub(second, b.mul(first, first));
  variance = b.make<MaxOp>(variance, b.splatLike(variance, 0.0));
  Type narrow = b.builder.getF32Type();
  return {b.cast(first, narrow), b.cast(variance, narrow)};
}

bool mpt::fuseMoments(ReduceOp variance) {
  auto square = variance.getX().getDefiningOp<MulOp>();
  auto centered = square && square.getLhs() == square.getRhs() ? square.getLhs().getDefiningOp<SubOp>() : SubOp();
  auto along = centered ? centered.getRhs().getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto mean = along ? along.getX().getDefiningOp<ReduceOp>() : ReduceOp();
  if (!mean || variance.getKind() != ReduceKind::mean || mean.getKind() != ReduceKind::mean ||
      mean.getX() != centered.getLhs() || mean.getAxes() != variance.getAxes() || !elementOf(mean.getY()).isF32() ||
      !elementOf(variance.getY()).isF32())
    return refuse(DEBUG_TYPE, variance) << "not moments: expected the FP32 mean of squares around an FP32 mean";
  RankedTensorType x = tensorType(mean.getX());
  ArrayRef<int64_t> axes = mean.getAxes();
  bool wholeRows = !axes.empty() && axes.front() == x.getRank() - static_cast<int64_t>(axes.size());
  if (int64_t length = countOf(mean.getX()) / std::max<int64_t>(1, countOf(mean.getY()));
      wholeRows && length < longReduction)
    return refuse(DEBUG_TYPE, variance) << "not moments: expected rows of at least " << longReduction
                                        << " elements, which no team of threads keeps, got " << length;
  OpBuilder builder(mean);
  GraphBuilder b(builder, mean.getLoc());
  auto [first, second] = meanAndVariance(b, mean.getX(), axes, [](Value own, unsigned) { return own; });
  mean.getY().replaceAllUsesWith(first);
  variance.getY().replaceAllUsesWith(second);
  variance.erase();
  return true;
}

void mpt::moveBeforeReshapes(func::FuncOp function) { BeforeReshapes(function).run(); }

bool mpt::splitExtremum(ReduceOp op) {
  RankedTensorType x = tensorType(op.getX());
  int64_t rank = x.getRank();
  if ((op.getKind() != ReduceKind::max && op.getKind() != ReduceKind::min) || !reducesAll(op) || rank < 2 ||
      x.getShape().back() < 32 || x.getNumElements() < longReduction)
    return refuse(DEBUG_TYPE, op) << "not split by rows: expected the extremum of all elements of a large matrix";
  Value made = op.getX();
  while (made.getDefiningOp() && isPlain(made.getDefiningOp()) && made.getDefiningOp()->getNumOperands() == 1)
    made = made.getDefiningOp()->getOperand(0);
  Operation *source = made.getDefiningOp();
  SmallVector<int64_t> first = columnAxesOf(made);
  if (first.empty()) {
    if (!source || !isa<LoopLowering>(source) || isViewOp(source) || cast<LoopLowering>(source).standsAlone())
      return refuse(DEBUG_TYPE, op) << "not split by rows: expected elements that a kernel makes or adds up";
    first = {rank - 1};
  }
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  Value parts = b.reduce(op.getKind(), op.getX(), first);
  op.getY().replaceAllUsesWith(b.reduce(op.getKind(), parts, axisRange(0, rank - static_cast<int64_t>(first.size()))));
  op.erase();
  return true;
}
