// SPDX-License-Identifier: Apache-2.0
// Reverse walk over a function, and the registration of all rules.
#include "Rules.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mpt;

void Backward::give(Value operand, function_ref<Value()> gradient) {
  if (!wants(operand))
    return;
  Value value = gradient();
  grads.add(builder, operand, value ? cast(value, tensorType(operand).getElementType()) : value);
}

void Backward::unsupported(const Twine &why) {
  status = op->emitError() << "no gradient for " << op->getName() << ": " << why;
}

/// Marks the float results of `op` as wanted when an operand is.
static void propagateWants(Operation *op, GradientMap &grads) {
  if (llvm::none_of(op->getOperands(), [&](Value operand) { return grads.wants(operand); }))
    return;
  for (Value result : op->getResults())
    if (isa<FloatType>(getElementTypeOrSelf(result.getType())))
      grads.want(result);
}

LogicalResult mpt::differentiateDecomposition(Operation *op, OpBuilder &builder, GradientMap &grads) {
  Block *block = builder.getInsertionBlock();
  auto end = builder.getInsertionPoint();
  Operation *before = end == block->begin() ? nullptr : &*std::prev(end);
  auto values = cast<Decomposable>(op).decompose(builder);
  if (failed(values))
    return op->emitError() << "no gradient for " << op->getName() << ": it cannot be decomposed";

  SmallVector<Operation *> body;
  for (auto it = before ? std::next(before->getIterator()) : block->begin(); it != end; ++it)
    body.push_back(&*it);
  for (Operation *inner : body)
    propagateWants(inner, grads);
  for (auto [result, value] : llvm::zip_equal(op->getResults(), *values))
    grads.add(builder, value, grads.get(result));
  for (Operation *inner : llvm::reverse(body))
    if (failed(differentiateOp(inner, builder, grads)))
      return failure();
  return success();
}

LogicalResult mpt::differentiateOp(Operation *op, OpBuilder &builder, GradientMap &grads) {
  if (llvm::none_of(op->getResults(), [&](Value result) { return grads.get(result); }) ||
      llvm::none_of(op->getOperands(), [&](Value operand) { return grads.wants(operand); }))
    return success();
  if (auto rule = dyn_cast<Differentiable>(op))
    return rule.backward(builder, grads);
  if (isa<Decomposable>(op))
    return differentiateDecomposition(op, builder, grads);
  return op->emitError() << "no gradient for " << op->getName()
                         << ": it has neither a gradient rule nor a decomposition; freeze the parameters before it";
}

/// The sum of two gradients that zeros pad to the same type, one right after the other along one axis: their
/// concatenation, padded as a whole. Such sums come from the slices of a value, as heads and gates are cut. Null
/// for other sums.
static Value joinPads(OpBuilder &builder, Location loc, Value a, Value b) {
  auto isGradientOfSlice = [](PadOp pad) {
    auto whole = [](ArrayRef<int64_t> margins) { return llvm::all_of(margins, [](int64_t m) { return m >= 0; }); };
    return pad && pad.getValue().isZero() && whole(pad.getLow()) && whole(pad.getHigh()) &&
           llvm::all_of(pad.getInterior(), [](int64_t gap) { return gap == 0; });
  };
  auto first = a.getDefiningOp<PadOp>(), second = b.getDefiningOp<PadOp>();
  if (!isGradientOfSlice(first) || !isGradientOfSlice(second))
    return {};
  std::optional<int64_t> axis;
  for (int64_t i = 0, rank = first.getLow().size(); i < rank; ++i) {
    if (first.getLow()[i] == second.getLow()[i] && first.getHigh()[i] == second.getHigh()[i])
      continue;
    if (axis)
      return {};
    axis = i;
  }
  if (!axis)
    return {};
  if (second.getLow()[*axis] < first.getLow()[*axis])
    std::swap(first, second);
  int64_t extent = tensorType(first.getX()).getDimSize(*axis);
  if (first.getLow()[*axis] + extent != second.getLow()[*axis])
    return {};
  SmallVector<Value> parts;
  for (Value part : {first.getX(), second.getX()}) {
    auto several = part.getDefiningOp<ConcatOp>();
    if (several && static_cast<int64_t>(several.getAxis()) == *axis && part.hasOneUse())
      llvm::append_range(parts, several.getInputs());
    else
      parts.push_back(part);
  }
  Value both = ConcatOp::create(builder, loc, parts, *axis);
  SmallVector<int64_t> high(first.getHigh());
  high[*axis] = second.getHigh()[*axis];
  auto isZero = [](int64_t margin) { return margin == 0; };
  if (llvm::all_of(first.getLow(), isZero) && llvm::all_of(high, isZero))
    return both;
  return PadOp::create(builder, loc, both, first.getLow(), high, first.getInterior(), APFloat(0.0));
}

FailureOr<SmallVector<Value>> mpt::differentiate(func::FuncOp function, Value loss, ArrayRef<Value> wrt,
                                                 OpBuilder &builder, GradientCallback completed) {
  return differentiate(function, LossTerm{"", loss, 1.0}, wrt, builder, completed);
}

FailureOr<SmallVector<Value>> mpt::differentiate(func::FuncOp function, ArrayRef<LossTerm> losses, ArrayRef<Value> wrt,
                                                 OpBuilder &builder, GradientCallback completed) {
  GradientMap grads([](OpBuilder &builder, Location loc, Value a, Value b) -> Value {
    Value joined = joinPads(builder, loc, a, b);
    return joined ? joined : AddOp::create(builder, loc, a, b);
  });
  // A gradient is complete once the first of the value's users is differentiated.
  DenseMap<Operation *, SmallVector<Value>> completes;
  for (Value value : wrt) {
    grads.want(value);
    Operation *first = nullptr;
    for (Operation *user : value.getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    if (first)
      completes[first].push_back(value);
  }
  SmallVector<Operation *> forward;
  for (Operation &op : function.getBody().front()) {
    if (builder.getInsertionBlock() == op.getBlock() && builder.getInsertionPoint() == op.getIterator())
      break;
    propagateWants(&op, grads);
    forward.push_back(&op);
  }

  // A scale of 1 for now: an op, since folding would lose track of a constant.
  for (const LossTerm &loss : losses) {
    GraphBuilder b(builder, loss.value.getLoc());
    auto seed = train::ScaleLossOp::create(builder, b.loc, b.splat(tensorType(loss.value), loss.weight),
                                           b.scalar(builder.getF32Type(), 1.0));
    setAttr<MPTDialect::SeedAttrHelper>(seed, loss.name.empty() ? Attribute(builder.getUnitAttr())
                                                                : builder.getStringAttr(loss.name));
    grads.add(builder, loss.value, seed);
  }
  for (Operation *op : llvm::reverse(forward)) {
    if (failed(differentiateOp(op, builder, grads)))
      return failure();
    for (Value value : completes.lookup(op))
      if (Value gradient = grads.get(value); gradient && completed)
        completed(builder, value, gradient);
  }
  return llvm::map_to_vector(wrt, [&](Value value) { return grads.get(value); });
}

int64_t mpt::eraseDeadOps(func::FuncOp function) {
  int64_t count = 0;
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op)) {
      op.erase();
      ++count;
    }
  return count;
}

void mpt::eraseAllButGradients(func::FuncOp function) {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (!isa<train::GradientOp>(op) && isOpTriviallyDead(&op))
      op.erase();
}

void mpt::registerAutodiffModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachCastGradients(context);
    attachConvGradients(context);
    attachElementwiseGradients(context);
    attachGatherGradients(context);
    attachLossGradients(context);
    attachMatMulGradients(context);
    attachNormGradients(context);
    attachPoolGradients(context);
    attachRandomGradients(context);
    attachRecurrentGradients(context);
    attachReduceGradients(context);
    attachResizeGradients(context);
    attachScatterGradients(context);
    attachShapeGradients(context);
    attachTrainingGradients(context);
    attachEvaluationForms(context);
    attachNotDifferentiable(context);
    attachLinearity(context);
  });
}
