// SPDX-License-Identifier: Apache-2.0
// --library-form-attention: a softmax between two GEMMs becomes one call, and so do their gradients.
// Matcher: softmax between two GEMMs, the scales, casts, masks and dropout on the way, and the ops of its gradient.
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/Accumulators.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Library/Masks.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Apart.h"
#include "passes/library/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#define DEBUG_TYPE "library-form-attention"

namespace mpt {
#define GEN_PASS_DEF_FORMATTENTION
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Depths that the call takes.
struct Depths {
  int64_t most, unit;
  bool take(int64_t depth) const { return (!most || depth <= most) && depth % unit == 0; }
};

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

/// Whether two values are one, or the same views of one.
bool isSame(Value a, Value b) {
  Operation *of = a.getDefiningOp(), *other = b.getDefiningOp();
  if (a == b || a.getType() != b.getType() || !isa_and_nonnull<ReshapeOp, TransposeOp>(of) || !other ||
      of->getName() != other->getName())
    return a == b;
  auto transpose = dyn_cast<TransposeOp>(of);
  return (!transpose || transpose.getPermutation() == cast<TransposeOp>(other).getPermutation()) &&
         isSame(of->getOperand(0), other->getOperand(0));
}

/// Whether `gemm` sums over a dimension of `x` and one of `y`, each the last but one or the last; and if x's other
/// dimension comes first in its result.
struct Contracted {
  bool holds = false, xFirst = false;
};
Contracted contracts(MatMulOp gemm, Value x, bool lastOfX, Value y, bool lastOfY) {
  if (isSame(gemm.getA(), x) && isSame(gemm.getB(), y) && gemm.getTransposeA() != lastOfX &&
      gemm.getTransposeB() == lastOfY)
    return {true, true};
  if (isSame(gemm.getA(), y) && isSame(gemm.getB(), x) && gemm.getTransposeA() != lastOfY &&
      gemm.getTransposeB() == lastOfX)
    return {true, false};
  return {};
}

/// A GEMM reads `value`, or the result of casts, guards, dropout and views of it.
bool feedsGemm(Value value) {
  return llvm::any_of(value.getUsers(), [](Operation *user) {
    return isa<MatMulOp>(user) ||
           (isa<CastOp, SelectOp, DropoutOp, ReshapeOp, TransposeOp>(user) && feedsGemm(user->getResult(0)));
  });
}

/// Which rows have no key: a condition that says of each row whether all of its scores are -infinity.
struct RowGuard {
  CompareOp compare;         ///< of scores with -infinity; null where the condition says something else
  bool holdsIfEmpty = false; ///< the condition holds for rows without keys; else for rows with some

  /// Looks for it upwards from the condition of a select: repetition along rows, casts, negations, one reduction.
  static RowGuard of(Value condition) {
    RowGuard guard{{}, true};
    ReduceOp reduce;
    bool isInverted = false; // an odd number of negations since the reduction
    while (Operation *op = condition.getDefiningOp()) {
      if (isa<NotOp>(op)) {
        isInverted = !isInverted;
      } else if (auto compare = dyn_cast<CompareOp>(op)) {
        std::optional<double> number = splatNumber(compare.getRhs());
        if (!reduce || !number || *number != -std::numeric_limits<double>::infinity())
          return {};
        // All are -infinity, or not any is not.
        const Predicate each = (reduce.getKind() == ReduceKind::min) != isInverted ? Predicate::eq : Predicate::ne;
        guard.compare = compare.getPredicate() == each ? compare : CompareOp();
        return guard;
      } else if (auto found = dyn_cast<ReduceOp>(op)) {
        const bool isAll = found.getKind() == ReduceKind::min;
        if (reduce || !(isAll || found.getKind() == ReduceKind::max) || found.getAxes().size() != 1 ||
            found.getAxes().front() != rankOf(found.getX()) - 1)
          return {};
        guard.holdsIfEmpty = isAll != isInverted;
        isInverted = false;
        reduce = found;
      } else if (!isa<CastOp>(op) && !keepsRows(op, bool(reduce))) {
        return {};
      }
      condition = op->getOperand(0);
    }
    return {};
  }

private:
  /// Views keep the order of rows. Behind the reduction a row's one value goes to all of its elements; before it rows
  /// keep their length.
  static bool keepsRows(Operation *op, bool isReduced) {
    ArrayRef<int64_t> x = shapeOf(op->getOperand(0)), y = shapeOf(op->getResult(0));
    if (isa<ReshapeOp>(op))
      return !isReduced || x.take_back() == y.take_back();
    return isa<BroadcastOp>(op) && !isReduced && x.size() == y.size() && x.drop_back() == y.drop_back();
  }
};

/// Whether selects alone read `condition` and conditions made of it; adds these.
bool onlySelects(Value condition, DenseSet<Value> &conditions) {
  return llvm::all_of(condition.getUses(), [&](OpOperand &use) {
    if (isa<SelectOp>(use.getOwner()))
      return use.getOperandNumber() == 0 && (conditions.insert(condition), true);
    return isa<NotOp, CastOp, ReduceOp, ReshapeOp, BroadcastOp>(use.getOwner()) &&
           onlySelects(use.getOwner()->getResult(0), conditions);
  });
}

/// A softmax between two GEMMs, and its readers in the backward pass.
class Match {
public:
  Match(SoftmaxOp softmax, Depths depths) : softmax(softmax), depths(depths) {}
  bool find() { return findReaders() && findOperands() && (!gradient || findGradient()); }
  /// False where the mask is not one; nothing has changed then.
  bool rewrite(KnownMasks &known);
  bool hasGradient() const { return gradient; }
  /// Why it is no attention.
  StringRef whyNot() const { return why; }

private:
  bool no(const Twine &reason) {
    why = reason.str();
    return false;
  }
  /// A GEMM that makes a gradient; `flipped`: with the depth before the tokens.
  struct Part {
    MatMulOp gemm;
    bool flipped = false;
  };
  bool findReaders();
  bool followReader(OpOperand &use, SmallVectorImpl<Value> &open);
  bool takeGemms();
  /// `op` is the dropout of the probabilities, or of their gradient.
  bool dropsAlike(DropoutOp op) {
    return dropout && op && op.getKey() == dropout.getKey() && op.getRatio() == dropout.getRatio() &&
           op.getStream() == dropout.getStream();
  }
  /// The operand that a select keeps where it puts 0 for rows without keys; 0 for another select.
  unsigned keptOf(SelectOp select) {
    auto nan = select.getCondition().getDefiningOp<IsNaNOp>();
    RowGuard guard = RowGuard::of(select.getCondition());
    if (guard.compare && beforeCast(guard.compare.getLhs()) == beforeCast(softmax.getX()))
      compares.insert(guard.compare);
    else if (!nan || !family.contains(nan.getOperand()))
      return 0;
    const unsigned kept = nan || guard.holdsIfEmpty ? 2 : 1;
    return splatNumber(select.getOperand(3 - kept)) == 0.0 ? kept : 0;
  }
  static Value beforeCast(Value value) {
    Operation *op = value.getDefiningOp();
    return isPlainCast(op) ? op->getOperand(0) : value;
  }
  /// Whether one op reads `value`, beside ops that look for rows without keys.
  bool hasOneReader(Value value) {
    return llvm::count_if(value.getUsers(), [&](Operation *user) {
             return !compares.contains(user) &&
                    !(isPlainCast(user) &&
                      llvm::all_of(user->getUsers(), [&](Operation *next) { return compares.contains(next); }));
           }) == 1;
  }
  /// The way from `value` up to the GEMM, through scales and masks; buildMask looks at the rest.
  bool follow(Value value);
  bool findOperands();
  bool findOutputGradient();
  bool findScoresGradient(Value &ds);
  bool findGradient();
  bool buildMask(GraphBuilder &b, KnownMasks &known, Mask &mask);
  /// The operand of the forward GEMM in front of a scale that its gradient is multiplied by as well.
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
  Depths depths;
  MatMulOp scores, output;          ///< s = a b, o = p v
  MatMulOp dScoresOfOutput, dValue; ///< dp = do v^T, dv = p^T do
  Value probabilities, dOutput;     ///< p as output reads it
  SoftmaxBackwardOp gradient;
  DropoutOp dropout;
  DenseSet<Value> family;         ///< softmax's result, its casts, and both dropped
  DenseSet<Value> dropped;        ///< of these, the values behind dropout
  DenseSet<Value> guards;         ///< is_nan of them, and conditions made of `compares`
  DenseSet<Operation *> compares; ///< of scores with -infinity, for rows without keys
  SmallVector<MatMulOp> gemms;    ///< that read them
  SmallVector<Operation *> chain; ///< from softmax's operand up to the GEMM
  Part dA, dB, dV;
  std::string why;
};

/// A reader of the probabilities, or of values made of them: on to its result, or the end of the way.
bool Match::followReader(OpOperand &use, SmallVectorImpl<Value> &open) {
  Operation *user = use.getOwner();
  const bool isDropped = dropped.contains(use.get());
  auto go = [&](Value result) {
    open.push_back(result);
    if (isDropped)
      dropped.insert(result);
    return true;
  };
  if (isPlainCast(user))
    return go(user->getResult(0));
  if (auto nan = dyn_cast<IsNaNOp>(user)) {
    guards.insert(nan.getResult());
    return true;
  }
  if (auto select = dyn_cast<SelectOp>(user)) {
    // Rows without any key: NaN becomes 0.
    if (const unsigned kept = keptOf(select); kept == 0 || use.getOperandNumber() != kept)
      return no("expected a select behind softmax to put 0 for NaN or for rows without keys, got another one");
    return go(select.getY());
  }
  if (auto drop = dyn_cast<DropoutOp>(user)) {
    const double ratio = drop.getRatio().convertToDouble();
    if (dropout || !(ratio > 0) || !elementOf(drop.getKey()).isInteger(64))
      return no(
          "expected one dropout of the probabilities, with a ratio above 0 and a key of 64 bits, got another one");
    dropout = drop;
    dropped.insert(drop.getY());
    open.push_back(drop.getY());
    return true;
  }
  if (auto gemm = dyn_cast<MatMulOp>(user)) {
    gemms.push_back(gemm);
    return true;
  }
  if (auto backward = dyn_cast<SoftmaxBackwardOp>(user)) {
    if (gradient || isDropped || use.getOperandNumber() != 1 || backward.getAxis() != softmax.getAxis())
      return no("expected one gradient of softmax, over the same dimension, got another one");
    gradient = backward;
    return true;
  }
  return no("expected GEMMs and the gradient alone to read the probabilities, got another reader");
}

/// The GEMMs that read the probabilities, each in its role.
bool Match::takeGemms() {
  if (gemms.size() != (gradient ? 2 : 1))
    return no("expected one GEMM with the probabilities each way, got more or fewer");
  for (MatMulOp gemm : gemms) {
    Value read = family.contains(gemm.getA()) ? gemm.getA() : gemm.getB();
    if (dropout && !dropped.contains(read))
      return no("expected GEMMs to read the probabilities behind dropout, got one that reads them before");
    (family.contains(gemm.getA()) && !gemm.getTransposeA() ? output : dValue) = gemm;
  }
  if (!output || bool(dValue) != bool(gradient) || family.contains(output.getB()))
    return no("expected the probabilities to be the first operand of a GEMM, got them elsewhere");
  return true;
}

bool Match::findReaders() {
  int64_t rank = rankOf(softmax.getX());
  if (rank < 3 || rank > 4 || static_cast<int64_t>(softmax.getAxis()) != rank - 1)
    return no("expected scores of rank 3 or 4 and a softmax over the last dimension, got others");
  SmallVector<Value> open{softmax.getY()};
  while (!open.empty()) {
    Value value = open.pop_back_val();
    family.insert(value);
    for (OpOperand &use : value.getUses())
      if (!followReader(use, open))
        return false;
  }
  for (Value guard : guards)
    for (OpOperand &use : guard.getUses())
      if (!isa<SelectOp>(use.getOwner()) || use.getOperandNumber() != 0)
        return no("expected selects alone to read where probabilities are NaN, got another reader");
  for (Operation *compare : compares)
    if (!onlySelects(compare->getResult(0), guards))
      return no("expected selects alone to read which rows have no key, got another reader");
  return takeGemms();
}

bool Match::follow(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !hasOneReader(value) || chain.size() > 8)
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
    return no("expected scores of a GEMM that scales and masks alone read on the way, got others");
  probabilities = output.getA();
  Value a = scores.getA(), c = scores.getB(), v = output.getB();
  int64_t rank = rankOf(a);
  for (MatMulOp gemm : {scores, output})
    if (NumericsAttr numerics = gemm.getNumericsAttr();
        numerics && (numerics.getIn() != elementOf(v) || !numerics.getAcc().isF32()))
      return no("expected GEMMs that multiply in their operands' type and accumulate in FP32, got other types");
  int64_t depth = tensorType(a).getDimSize(rank - (scores.getTransposeA() ? 2 : 1));
  int64_t valueDepth = tensorType(v).getDimSize(rank - (output.getTransposeB() ? 2 : 1));
  Type type = elementOf(v);
  for (Value operand : {a, c, v, probabilities, Value(output.getY())})
    if (!isHalf(operand) || elementOf(operand) != type)
      return no("expected operands and a result all of FP16 or all of BF16, got others");
  if (!depths.take(depth) || !depths.take(valueDepth))
    return no("expected depths of at most " + Twine(depths.most) + " in multiples of " + Twine(depths.unit) +
              ", got another depth");
  return true;
}

/// dp, through casts, dropout and the guard of rows without keys; and the GEMMs of the output's gradient.
bool Match::findOutputGradient() {
  Value dp = gradient.getDy();
  unsigned drops = 0;
  while (!(dScoresOfOutput = dp.getDefiningOp<MatMulOp>())) {
    Operation *op = dp.getDefiningOp();
    auto select = dyn_cast_or_null<SelectOp>(op);
    const unsigned kept = select ? keptOf(select) : 0;
    bool isDropout = dropsAlike(dyn_cast_or_null<DropoutOp>(op));
    drops += isDropout;
    if (!dp.hasOneUse() || !(isPlainCast(op) || isDropout || kept))
      return no("expected the gradient of the probabilities from one GEMM, got it changed on the way");
    dp = op->getOperand(kept);
  }
  if (drops != (dropout ? 1 : 0))
    return no("expected the gradient to be dropped as the probabilities are, got another dropout");
  Value v = output.getB();
  dOutput = dScoresOfOutput.getA();
  auto ofValue = contracts(dScoresOfOutput, dOutput, true, v, !output.getTransposeB());
  auto toValue =
      contracts(dValue, family.contains(dValue.getA()) ? dValue.getA() : dValue.getB(), false, dOutput, false);
  if (!dp.hasOneUse() || !ofValue.holds || !ofValue.xFirst || !toValue.holds || !isHalf(dOutput) ||
      elementOf(dOutput) != elementOf(v) || elementOf(dValue.getY()) != elementOf(v) ||
      !family.contains(toValue.xFirst ? dValue.getA() : dValue.getB()))
    return no("expected the GEMMs of the output's gradient, got others");
  dV = {dValue, !toValue.xFirst};
  return true;
}

/// The gradient of scores as its GEMMs read it, behind the scales and masks that the scores went through.
bool Match::findScoresGradient(Value &ds) {
  double forward = 1, backward = 1;
  SmallVector<Value> conditions;
  for (Operation *op : chain) {
    if (Value inner = scaled(op).first)
      forward *= scaled(op).second;
    if (auto select = dyn_cast<SelectOp>(op))
      conditions.push_back(select.getCondition());
  }
  ds = gradient.getDx();
  while (!llvm::all_of(ds.getUsers(), [](Operation *user) { return isa<MatMulOp>(user); })) {
    if (!ds.hasOneUse())
      return no("expected GEMMs alone to read the gradient of the scores, got another reader");
    Operation *op = *ds.user_begin();
    if (auto [inner, factor] = scaled(op); inner == ds)
      backward *= factor;
    else if (auto select = dyn_cast<SelectOp>(op)) {
      Value other = select.getOnTrue() == ds ? select.getOnFalse() : select.getOnTrue();
      if (!llvm::is_contained(conditions, select.getCondition()) || select.getCondition() == ds ||
          splatNumber(other) != 0.0)
        return no("expected the gradient of the scores to be masked as they are, got another mask");
    } else if (!isPlainCast(op)) {
      return no("expected scales and masks between the gradient of the scores and its GEMMs, got another op");
    }
    ds = op->getResult(0);
  }
  return isClose(backward, forward) || no("expected the gradient to be scaled as the scores are, got another factor");
}

bool Match::findGradient() {
  Value ds;
  if (!findOutputGradient() || !findScoresGradient(ds))
    return false;
  Value a = scores.getA(), c = scores.getB();
  for (Operation *user : ds.getUsers()) {
    auto gemm = cast<MatMulOp>(user);
    if (elementOf(gemm.getY()) != elementOf(output.getB()))
      return no("expected gradients of q and k in v's type, got another type");
    if (auto found = contracts(gemm, ds, true, c, !scores.getTransposeB()); found.holds && !dA.gemm)
      dA = {gemm, !found.xFirst};
    else if (auto found = contracts(gemm, ds, false, a, scores.getTransposeA()); found.holds && !dB.gemm)
      dB = {gemm, !found.xFirst};
    else
      return no("expected the GEMMs of q's and k's gradients, got another one");
  }
  return true;
}

bool Match::buildMask(GraphBuilder &b, KnownMasks &known, Mask &mask) {
  MaskBuilder masks(b, tensorType(softmax.getX()), known);
  double factor = 1; // of the ops before, in the order from softmax up
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
  if (gradient && part.gemm)
    for (Operation *user : part.gemm.getY().getUsers())
      if (auto [of, by] = scaled(user);
          of != part.gemm.getY() || !isClose(by, number) || elementOf(user->getResult(0)) != elementOf(operand))
        return operand;
  factor *= number;
  return inner;
}

void Match::replace(GraphBuilder &b, Part part, Value operand, Value unscaled, Value result) {
  if (!part.gemm)
    return;
  MatMulOp gemm = part.gemm;
  Value value = rankOf(gemm.getY()) == 4
                    ? result
                    : b.reshape(result, {tensorType(result).getDimSize(0), tensorType(result).getDimSize(2),
                                         tensorType(result).getDimSize(3)});
  if (part.flipped)
    value = flipped(b, value);
  if (operand == unscaled) {
    gemm.getY().replaceAllUsesWith(value);
    return;
  }
  for (Operation *user : llvm::make_early_inc_range(gemm.getY().getUsers()))
    user->getResult(0).replaceAllUsesWith(value);
}

bool Match::rewrite(KnownMasks &known) {
  OpBuilder builder(output);
  GraphBuilder b(builder, output.getLoc());
  Mask mask;
  if (!buildMask(b, known, mask))
    return no("expected additions and selects that mask keys, got others");
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
  Value key = dropout ? dropout.getKey() : Value();
  const APFloat ratio = dropout ? dropout.getRatio() : APFloat(0.0);
  const uint64_t stream = dropout ? dropout.getStream() : 0;
  auto attention = library::AttentionOp::create(builder, output.getLoc(), type.clone(shape), statistics, q, k, v,
                                                mask.bias, key, APFloat(scale), mask.causal, ratio, stream);
  if (NumericsAttr numerics = output.getNumericsAttr())
    attention->setAttr(kNumericsAttr, numerics);
  Value o = attention.getO();
  if (gradient) {
    Operation *first = dScoresOfOutput->isBeforeInBlock(dValue) ? dScoresOfOutput : dValue;
    builder.setInsertionPoint(first);
    GraphBuilder g(builder, gradient.getLoc());
    Value dO = fourDimensional(g, dOutput);
    auto gradients = library::AttentionGradientOp::create(builder, gradient.getLoc(), q.getType(), k.getType(),
                                                          v.getType(), q, k, v, mask.bias, key, o, attention.getStats(),
                                                          dO, APFloat(scale), mask.causal, ratio, stream);
    carryPart(first, gradients);
    if (NumericsAttr numerics = output.getNumericsAttr())
      gradients->setAttr(kNumericsAttr, numerics);
    replace(g, dV, output.getB(), output.getB(), gradients.getDv());
    replace(g, dA, a, plainA, gradients.getDq());
    replace(g, dB, c, plainC, gradients.getDk());
    builder.setInsertionPointAfter(attention);
  }
  if (rankOf(output.getY()) == 3)
    o = b.reshape(o, tensorType(output.getY()).getShape());
  output.getY().replaceAllUsesWith(o);
  return true;
}

struct FormAttention : mpt::impl::FormAttentionBase<FormAttention> {
  using FormAttentionBase::FormAttentionBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      KnownMasks known;
      for (auto softmax : llvm::to_vector(function.getOps<SoftmaxOp>())) {
        Match match(softmax, {mostDepth, depthUnit});
        if (!match.find() || !match.rewrite(known)) {
          (void)(refuse(DEBUG_TYPE, softmax) << "not an attention: " << match.whyNot());
          if (feedsGemm(softmax.getY()))
            noteApart(softmax, "not an attention: " + match.whyNot());
          continue;
        }
        ++numFused;
        numGradients += match.hasGradient();
      }
      // The rest of the old path.
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
