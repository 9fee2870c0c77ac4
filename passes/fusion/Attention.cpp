// SPDX-License-Identifier: Apache-2.0
// --fusion-attention: products, softmax and products become one call, and so do their gradients.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Reference/Masks.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {
#define GEN_PASS_DEF_ATTENTION
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t mostDepth = 128, depthUnit = 8; ///< what fused engines take

int64_t rankOf(Value value) { return tensorType(value).getRank(); }
Type elementOf(Value value) { return tensorType(value).getElementType(); }
bool isHalf(Value value) { return elementOf(value).isF16() || elementOf(value).isBF16(); }

/// A cast between floats that rounds to nearest, if any.
bool isPlainCast(Operation *op) {
  auto cast = dyn_cast_or_null<CastOp>(op);
  return cast && !cast.getKey() && isa<FloatType>(elementOf(cast.getX())) && isa<FloatType>(elementOf(cast.getY()));
}

/// A value times a number: the value, or null, and the number.
std::pair<Value, double> scaled(Operation *op) {
  if (auto mul = dyn_cast_or_null<MulOp>(op)) {
    if (auto number = splatNumber(mul.getRhs()))
      return {mul.getLhs(), *number};
    if (auto number = splatNumber(mul.getLhs()))
      return {mul.getRhs(), *number};
  }
  if (auto div = dyn_cast_or_null<DivOp>(op))
    if (auto number = splatNumber(div.getRhs()); number && *number != 0)
      return {div.getLhs(), 1 / *number};
  return {};
}

bool isClose(double a, double b) { return std::abs(a - b) <= std::abs(b) / 128; }

/// The last two dimensions, exchanged.
Value flipped(GraphBuilder &b, Value value) {
  SmallVector<int64_t> order = axisRange(0, rankOf(value));
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return b.transpose(value, order);
}

/// Whether `product` sums over a dimension of `x` and one of `y`, each the last but one or the last; and if x's other
/// dimension comes first in its result.
struct Contraction2 {
  bool holds = false, xFirst = false;
};
Contraction2 contracts(MatMulOp product, Value x, bool lastOfX, Value y, bool lastOfY) {
  if (product.getA() == x && product.getB() == y && product.getTransposeA() != lastOfX &&
      product.getTransposeB() == lastOfY)
    return {true, true};
  if (product.getA() == y && product.getB() == x && product.getTransposeA() != lastOfY &&
      product.getTransposeB() == lastOfX)
    return {true, false};
  return {};
}

/// A softmax between two products, and what reads it in the backward pass.
class Match {
public:
  explicit Match(SoftmaxOp softmax) : softmax(softmax) {}
  bool find() { return findReaders() && findOperands() && (!gradient || findGradient()); }
  /// False where the mask is not one; nothing has changed then.
  bool rewrite(KnownMasks &known);
  bool hasGradient() const { return gradient; }

private:
  /// A product that makes a gradient; `flipped`: with the depth before the tokens.
  struct Part {
    MatMulOp product;
    bool flipped = false;
  };
  bool findReaders();
  /// The way from `value` up to the product, through what scales and masks; buildMask looks at the rest.
  bool follow(Value value);
  bool findOperands();
  bool findGradient();
  bool buildMask(GraphBuilder &b, KnownMasks &known, Mask &mask);
  /// The operand of the forward product in front of a scale that its gradient is multiplied by as well.
  Value beforeScale(Value operand, Part part, double &factor);
  void replace(GraphBuilder &b, Part part, Value operand, Value unscaled, Value result);
  Value fourDimensional(GraphBuilder &b, Value value) {
    ArrayRef<int64_t> s = tensorType(value).getShape();
    return s.size() == 4 ? value : b.reshape(value, {s[0], 1, s[1], s[2]});
  }
  Value asOperand(GraphBuilder &b, Value value, bool isFlipped) {
    return fourDimensional(b, isFlipped ? flipped(b, value) : value);
  }

  SoftmaxOp softmax;
  MatMulOp scores, output;          ///< s = a b, o = p v
  MatMulOp dScoresOfOutput, dValue; ///< dp = do v^T, dv = p^T do
  Value probabilities, dOutput;     ///< p as output reads it
  SoftmaxBackwardOp gradient;
  DenseSet<Value> family;         ///< softmax's result and its casts
  DenseSet<Value> guards;         ///< is_nan of them
  SmallVector<Operation *> chain; ///< from softmax's operand up to the product
  Part dA, dB, dV;
};

bool Match::findReaders() {
  Value x = softmax.getX();
  int64_t rank = rankOf(x);
  if (rank < 3 || rank > 4 || static_cast<int64_t>(softmax.getAxis()) != rank - 1)
    return false;
  SmallVector<Value> open{softmax.getY()};
  SmallVector<MatMulOp> products;
  while (!open.empty()) {
    Value value = open.pop_back_val();
    family.insert(value);
    for (OpOperand &use : value.getUses()) {
      Operation *user = use.getOwner();
      if (isPlainCast(user)) {
        open.push_back(user->getResult(0));
      } else if (auto nan = dyn_cast<IsNaNOp>(user)) {
        guards.insert(nan.getResult());
      } else if (auto select = dyn_cast<SelectOp>(user)) {
        // Rows without any key: NaN becomes 0.
        auto nan = select.getCondition().getDefiningOp<IsNaNOp>();
        if (use.getOperandNumber() != 2 || !nan || !family.contains(nan.getOperand()) ||
            splatNumber(select.getOnTrue()) != 0.0)
          return false;
        open.push_back(select.getY());
      } else if (auto product = dyn_cast<MatMulOp>(user)) {
        products.push_back(product);
      } else if (auto backward = dyn_cast<SoftmaxBackwardOp>(user)) {
        if (gradient || use.getOperandNumber() != 1 || static_cast<int64_t>(backward.getAxis()) != rank - 1)
          return false;
        gradient = backward;
      } else {
        return false;
      }
    }
  }
  for (Value guard : guards)
    for (OpOperand &use : guard.getUses())
      if (!isa<SelectOp>(use.getOwner()) || use.getOperandNumber() != 0)
        return false;
  if (products.size() != (gradient ? 2 : 1))
    return false;
  for (MatMulOp product : products)
    (family.contains(product.getA()) && !product.getTransposeA() ? output : dValue) = product;
  return output && bool(dValue) == bool(gradient) && !family.contains(output.getB());
}

bool Match::follow(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !value.hasOneUse() || chain.size() > 8)
    return false;
  if ((scores = dyn_cast<MatMulOp>(op)))
    return true;
  chain.push_back(op);
  bool found = false;
  if (Value inner = scaled(op).first)
    found = follow(inner);
  else if (isPlainCast(op))
    found = follow(op->getOperand(0));
  else if (auto add = dyn_cast<AddOp>(op))
    found = follow(add.getLhs()) || follow(add.getRhs());
  else if (auto select = dyn_cast<SelectOp>(op))
    found = follow(select.getOnTrue()) || follow(select.getOnFalse());
  if (!found)
    chain.pop_back();
  return found;
}

bool Match::findOperands() {
  if (!follow(softmax.getX()))
    return false;
  probabilities = output.getA();
  Value a = scores.getA(), c = scores.getB(), v = output.getB();
  int64_t rank = rankOf(a);
  for (MatMulOp product : {scores, output})
    if (NumericsAttr numerics = product.getNumericsAttr(); numerics && numerics.getIn() != elementOf(v))
      return false;
  int64_t depth = tensorType(a).getDimSize(rank - (scores.getTransposeA() ? 2 : 1));
  int64_t valueDepth = tensorType(v).getDimSize(rank - (output.getTransposeB() ? 2 : 1));
  Type type = elementOf(v);
  for (Value operand : {a, c, v, probabilities, Value(output.getY())})
    if (!isHalf(operand) || elementOf(operand) != type)
      return false;
  return depth <= mostDepth && valueDepth <= mostDepth && depth % depthUnit == 0 && valueDepth % depthUnit == 0;
}

bool Match::findGradient() {
  // dp, through casts and the guard of rows without keys.
  Value dp = gradient.getDy();
  while (!(dScoresOfOutput = dp.getDefiningOp<MatMulOp>())) {
    Operation *op = dp.getDefiningOp();
    auto select = dyn_cast_or_null<SelectOp>(op);
    if (!dp.hasOneUse() || !(isPlainCast(op) || (select && guards.contains(select.getCondition()) &&
                                                 splatNumber(select.getOnTrue()) == 0.0)))
      return false;
    dp = op->getOperand(select ? 2 : 0);
  }
  Value v = output.getB();
  dOutput = dScoresOfOutput.getA();
  auto ofValue = contracts(dScoresOfOutput, dOutput, true, v, !output.getTransposeB());
  auto toValue =
      contracts(dValue, family.contains(dValue.getA()) ? dValue.getA() : dValue.getB(), false, dOutput, false);
  if (!dp.hasOneUse() || !ofValue.holds || !ofValue.xFirst || !toValue.holds || !isHalf(dOutput) ||
      elementOf(dOutput) != elementOf(v) || elementOf(dValue.getY()) != elementOf(v) ||
      !family.contains(toValue.xFirst ? dValue.getA() : dValue.getB()))
    return false;
  dV = {dValue, !toValue.xFirst};
  // The gradient of scores, back to the product.
  double forward = 1, backward = 1;
  SmallVector<Value> conditions;
  for (Operation *op : chain) {
    if (Value inner = scaled(op).first)
      forward *= scaled(op).second;
    if (auto select = dyn_cast<SelectOp>(op))
      conditions.push_back(select.getCondition());
  }
  Value ds = gradient.getDx();
  while (true) {
    if (llvm::all_of(ds.getUsers(), [](Operation *user) { return isa<MatMulOp>(user); }))
      break;
    if (!ds.hasOneUse())
      return false;
    Operation *op = *ds.user_begin();
    if (auto [inner, factor] = scaled(op); inner == ds)
      backward *= factor;
    else if (auto select = dyn_cast<SelectOp>(op)) {
      Value other = select.getOnTrue() == ds ? select.getOnFalse() : select.getOnTrue();
      if (!llvm::is_contained(conditions, select.getCondition()) || select.getCondition() == ds ||
          splatNumber(other) != 0.0)
        return false;
    } else if (!isPlainCast(op)) {
      return false;
    }
    ds = op->getResult(0);
  }
  if (!isClose(backward, forward))
    return false;
  Value a = scores.getA(), c = scores.getB();
  for (Operation *user : ds.getUsers()) {
    auto product = cast<MatMulOp>(user);
    if (elementOf(product.getY()) != elementOf(v))
      return false;
    if (auto found = contracts(product, ds, true, c, !scores.getTransposeB()); found.holds && !dA.product)
      dA = {product, !found.xFirst};
    else if (auto found = contracts(product, ds, false, a, scores.getTransposeA()); found.holds && !dB.product)
      dB = {product, !found.xFirst};
    else
      return false;
  }
  return true;
}

bool Match::buildMask(GraphBuilder &b, KnownMasks &known, Mask &mask) {
  MaskBuilder masks(b, tensorType(softmax.getX()), known);
  double factor = 1; // of what comes before, in the order from softmax up
  for (auto [i, op] : llvm::enumerate(chain)) {
    Value through = scores.getY();
    if (i + 1 < chain.size())
      through = chain[i + 1]->getResult(0);
    if (auto [inner, number] = scaled(op); inner) {
      factor *= number;
    } else if (auto add = dyn_cast<AddOp>(op)) {
      if (!masks.add(add.getLhs() == through ? add.getRhs() : add.getLhs(), factor))
        return false;
    } else if (auto select = dyn_cast<SelectOp>(op)) {
      bool excluded = select.getOnFalse() == through;
      std::optional<double> sentinel = splatNumber(excluded ? select.getOnTrue() : select.getOnFalse());
      if (!sentinel || factor <= 0 || !masks.select(select.getCondition(), excluded, *sentinel * factor))
        return false;
    }
  }
  mask = masks.take();
  return true;
}

Value Match::beforeScale(Value operand, Part part, double &factor) {
  auto [inner, number] = scaled(operand.getDefiningOp());
  if (!inner)
    return operand;
  if (gradient && part.product)
    for (Operation *user : part.product.getY().getUsers())
      if (auto [of, by] = scaled(user);
          of != part.product.getY() || !isClose(by, number) || elementOf(user->getResult(0)) != elementOf(operand))
        return operand;
  factor *= number;
  return inner;
}

void Match::replace(GraphBuilder &b, Part part, Value operand, Value unscaled, Value result) {
  if (!part.product)
    return;
  MatMulOp product = part.product;
  Value value = rankOf(product.getY()) == 4
                    ? result
                    : b.reshape(result, {tensorType(result).getDimSize(0), tensorType(result).getDimSize(2),
                                         tensorType(result).getDimSize(3)});
  if (part.flipped)
    value = flipped(b, value);
  if (operand == unscaled) {
    product.getY().replaceAllUsesWith(value);
    return;
  }
  for (Operation *user : llvm::make_early_inc_range(product.getY().getUsers()))
    user->getResult(0).replaceAllUsesWith(value);
}

bool Match::rewrite(KnownMasks &known) {
  OpBuilder builder(output);
  GraphBuilder b(builder, output.getLoc());
  Mask mask;
  if (!buildMask(b, known, mask))
    return false;
  double scale = 1;
  for (Operation *op : chain)
    if (auto [inner, number] = scaled(op); inner)
      scale *= number;
  Value a = scores.getA(), c = scores.getB(), plainA = beforeScale(a, dA, scale), plainC = beforeScale(c, dB, scale);
  Value q = asOperand(b, plainA, scores.getTransposeA());
  Value k = asOperand(b, plainC, !scores.getTransposeB());
  Value v = asOperand(b, output.getB(), output.getTransposeB());
  if (mask.bias)
    mask.bias = fourDimensional(b, mask.bias);
  RankedTensorType type = tensorType(q);
  SmallVector<int64_t> shape(type.getShape());
  RankedTensorType statistics = RankedTensorType::get(ArrayRef(shape).drop_back(), builder.getF32Type());
  shape.back() = tensorType(v).getShape().back();
  auto attend = rt::AttendOp::create(builder, output.getLoc(), type.clone(shape), statistics, q, k, v, mask.bias,
                                     APFloat(scale), mask.causal);
  Value o = attend.getO();
  if (gradient) {
    Operation *first = dScoresOfOutput->isBeforeInBlock(dValue) ? dScoresOfOutput : dValue;
    builder.setInsertionPoint(first);
    GraphBuilder g(builder, gradient.getLoc());
    Value dO = fourDimensional(g, dOutput);
    auto gradients =
        rt::AttendGradientOp::create(builder, gradient.getLoc(), q.getType(), k.getType(), v.getType(), q, k, v,
                                     mask.bias, o, attend.getStats(), dO, APFloat(scale), mask.causal);
    replace(g, dV, output.getB(), output.getB(), gradients.getDv());
    replace(g, dA, a, plainA, gradients.getDq());
    replace(g, dB, c, plainC, gradients.getDk());
    builder.setInsertionPointAfter(attend);
  }
  if (rankOf(output.getY()) == 3)
    o = b.reshape(o, tensorType(output.getY()).getShape());
  output.getY().replaceAllUsesWith(o);
  return true;
}

struct Attention : mpt::impl::AttentionBase<Attention> {
  using AttentionBase::AttentionBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      KnownMasks known;
      for (auto softmax : llvm::to_vector(function.getOps<SoftmaxOp>())) {
        Match match(softmax);
        if (!match.find() || !match.rewrite(known))
          continue;
        ++numFused;
        numGradients += match.hasGradient();
      }
      // What is left of the old path.
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
