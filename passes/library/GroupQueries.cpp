// SPDX-License-Identifier: Apache-2.0
// --library-group-queries: heads of queries that share keys and values read them where they are, not repeated.
// Matcher: ops that repeat heads on the way to attention (broadcast, reshape, transpose, casts, factors), and back.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/Splats.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Apart.h"
#include "passes/library/Passes.h"

#define DEBUG_TYPE "library-group-queries"

namespace mpt {
#define GEN_PASS_DEF_GROUPQUERIES
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// A cast between floats that rounds to nearest, or a factor that is the same for all elements.
bool isUniform(Operation *op) {
  if (auto cast = dyn_cast_or_null<CastOp>(op))
    return !cast.getKey() && isa<FloatType>(elementOf(cast.getX()));
  return isa_and_nonnull<MulOp, DivOp>(op) && splatNumber(op->getOperand(1));
}

int64_t elementsBehind(ArrayRef<int64_t> shape, int64_t dimension) {
  int64_t product = 1;
  for (int64_t extent : shape.drop_front(dimension + 1))
    product *= extent;
  return product;
}

/// The dimension of `to` whose innermost factor is the one of `dimension` in `from`, a reshape of it; or -1.
int64_t throughReshape(ArrayRef<int64_t> from, int64_t dimension, ArrayRef<int64_t> to) {
  for (auto [i, extent] : llvm::enumerate(to))
    if (extent != 1 && elementsBehind(to, static_cast<int64_t>(i)) == elementsBehind(from, dimension))
      return static_cast<int64_t>(i);
  return -1;
}

/// An op that keeps heads apart, between their repetition or their sum and attention. Heads that share one are
/// neighbours: the innermost factor of dimension `from` of its operand and `to` of its result.
struct Step {
  Operation *op;
  int64_t from, to;

  /// Of an op and the dimension of its operand or of its result, the other of which is negative. Null where it is none.
  static std::optional<Step> of(Operation *op, int64_t from, int64_t to) {
    if (auto transpose = dyn_cast_or_null<TransposeOp>(op)) {
      ArrayRef<int64_t> permutation = transpose.getPermutation();
      if (from < 0)
        return Step{op, permutation[to], to};
      return Step{op, from, llvm::find(permutation, from) - permutation.begin()};
    }
    if (auto reshape = dyn_cast_or_null<ReshapeOp>(op)) {
      ArrayRef<int64_t> in = shapeOf(reshape.getX()), out = shapeOf(reshape.getY());
      if (from < 0)
        from = throughReshape(out, to, in);
      else
        to = throughReshape(in, from, out);
      return from < 0 || to < 0 ? std::nullopt : std::optional(Step{op, from, to});
    }
    if (!isUniform(op))
      return std::nullopt;
    return Step{op, std::max(from, to), std::max(from, to)};
  }
  bool keepsGroups(int64_t group) const {
    return shapeOf(op->getOperand(0))[from] % group == 0 && shapeOf(op->getResult(0))[to] % group == 0;
  }
  /// The op on `x`, which has one head for every `group` of its operand.
  Value apply(GraphBuilder &b, Value x, int64_t group) const {
    if (auto transpose = dyn_cast<TransposeOp>(op))
      return b.transpose(x, transpose.getPermutation());
    if (auto cast = dyn_cast<CastOp>(op))
      return b.cast(x, elementOf(cast.getY()));
    if (auto mul = dyn_cast<MulOp>(op))
      return b.mul(x, *splatNumber(mul.getRhs()));
    if (auto div = dyn_cast<DivOp>(op))
      return b.div(x, b.splatLike(x, *splatNumber(div.getRhs())));
    SmallVector<int64_t> shape(shapeOf(op->getResult(0)));
    shape[to] /= group;
    return b.reshape(x, shape);
  }
};

/// How the heads of an operand of attention are repeated.
class Repeat {
public:
  /// Looks for it upwards from `value`, whose heads are its dimension 1.
  bool find(Value value) {
    int64_t heads = 1;
    while (!(source = value.getDefiningOp<BroadcastOp>())) {
      std::optional<Step> step = Step::of(value.getDefiningOp(), -1, heads);
      if (!step)
        return false;
      steps.insert(steps.begin(), *step);
      heads = step->from;
      value = step->op->getOperand(0);
    }
    ArrayRef<int64_t> dims = source.getDims();
    const int64_t *place = llvm::find(dims, heads);
    if (place != dims.end() && shapeOf(source.getX())[place - dims.begin()] != 1)
      return false;
    repeated = heads;
    group = shapeOf(source.getY())[heads];
    return group > 1 && llvm::all_of(steps, [&](const Step &step) { return step.keepsGroups(group); });
  }
  /// The operand with each head once.
  Value build(GraphBuilder &b) {
    SmallVector<int64_t> shape(shapeOf(source.getY()));
    shape[repeated] = 1;
    Value x = b.broadcast(source.getX(), shape, source.getDims());
    for (const Step &step : steps)
      x = step.apply(b, x, group);
    return x;
  }
  int64_t group = 1; ///< heads of queries that share one

private:
  BroadcastOp source;
  int64_t repeated = 0;    ///< dimension of the broadcast
  SmallVector<Step> steps; ///< from the broadcast on
};

/// The sum of a gradient over the heads that share one.
class SharedSum {
public:
  /// Looks for it from `gradient` on, whose heads are its dimension 1, in groups of `group`.
  bool find(Value gradient, int64_t group) {
    this->group = group;
    int64_t heads = 1;
    Value value = gradient;
    if (value.use_empty())
      return true;
    while (value.hasOneUse()) {
      Operation *op = *value.user_begin();
      if ((sum = dyn_cast<ReduceOp>(op)))
        return sum.getKind() == ReduceKind::sum && llvm::is_contained(sum.getAxes(), heads) &&
               shapeOf(value)[heads] % group == 0;
      std::optional<Step> step = Step::of(op, heads, -1);
      if (!step || op->getOperand(0) != value || !step->keepsGroups(group))
        return false;
      steps.push_back(*step);
      heads = step->to;
      value = op->getResult(0);
    }
    return false;
  }
  /// Replaces the sum over repeated heads by `gradient`, in which these are summed already, and erases the old ops.
  void replace(GraphBuilder &b, Value gradient) {
    if (!sum)
      return;
    Value x = gradient;
    for (const Step &step : steps)
      x = step.apply(b, x, group);
    SmallVector<int64_t> rest;
    for (int64_t axis : sum.getAxes())
      if (shapeOf(x)[axis] != 1)
        rest.push_back(axis);
    if (!rest.empty())
      x = b.sum(x, rest);
    x = b.cast(b.reshape(x, shapeOf(sum.getY())), elementOf(sum.getY()));
    sum.getY().replaceAllUsesWith(x);
    sum->erase();
    for (const Step &step : llvm::reverse(steps))
      step.op->erase();
  }

private:
  ReduceOp sum;
  int64_t group = 1;
  SmallVector<Step> steps;
};

/// The gradient that belongs to `attention`, if there is one.
library::AttentionGradientOp gradientOf(library::AttentionOp attention) {
  for (Operation *user : attention.getStats().getUsers())
    if (auto gradient = dyn_cast<library::AttentionGradientOp>(user))
      return gradient;
  return {};
}

LogicalResult stays(library::AttentionOp attention, const Twine &why) {
  const std::string reason = ("not grouped: " + why).str();
  noteApart(attention, reason);
  return refuse(DEBUG_TYPE, attention) << reason;
}

LogicalResult group(library::AttentionOp attention) {
  Repeat keys, values;
  const bool keysRepeat = keys.find(attention.getK()), valuesRepeat = values.find(attention.getV());
  if (!keysRepeat && !valuesRepeat)
    return failure();
  if (!keysRepeat || !valuesRepeat || keys.group != values.group)
    return stays(attention, "expected keys and values repeated alike, got each head of them " +
                                Twine(keysRepeat ? keys.group : 1) + " and " + Twine(valuesRepeat ? values.group : 1) +
                                " times");
  library::AttentionGradientOp gradient = gradientOf(attention);
  SharedSum ofKeys, ofValues;
  if (gradient && (gradient.getK() != attention.getK() || gradient.getV() != attention.getV()))
    return stays(attention, "expected the gradient to read the same keys and values, got others");
  if (gradient && (!ofKeys.find(gradient.getDk(), keys.group) || !ofValues.find(gradient.getDv(), keys.group)))
    return stays(attention, "expected gradients of keys and values that are summed over the heads that share them, got "
                            "other readers");
  OpBuilder builder(attention);
  GraphBuilder b(builder, attention.getLoc());
  Value k = keys.build(b), v = values.build(b);
  attention.getKMutable().assign(k);
  attention.getVMutable().assign(v);
  if (!gradient)
    return success();
  gradient.getKMutable().assign(k);
  gradient.getVMutable().assign(v);
  gradient.getDk().setType(cast<RankedTensorType>(k.getType()));
  gradient.getDv().setType(cast<RankedTensorType>(v.getType()));
  GraphBuilder g(builder, gradient.getLoc());
  for (auto [sum, result] : {std::pair(&ofKeys, gradient.getDk()), std::pair(&ofValues, gradient.getDv())}) {
    builder.setInsertionPointAfter(gradient); // replacing erases the ops behind it
    sum->replace(g, result);
  }
  return success();
}

struct GroupQueries : mpt::impl::GroupQueriesBase<GroupQueries> {
  using GroupQueriesBase::GroupQueriesBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      for (auto attention : llvm::to_vector(function.getOps<library::AttentionOp>()))
        numGrouped += succeeded(group(attention));
      // Ops that repeated keys and values for nobody else.
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
