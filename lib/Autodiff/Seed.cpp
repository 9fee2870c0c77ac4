// SPDX-License-Identifier: Apache-2.0
// The search for the seed of a backward pass: which values are multiples of one number, and where they begin to be.
#include "mpt/Autodiff/Seed.h"

#include "SeedCheck.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/Linearity.h"

#include "llvm/ADT/BitVector.h"

#include <tuple>

using namespace mlir;
using namespace mpt;

namespace {

bool isConstant(Value value) { return value.getDefiningOp<ConstantOp>() != nullptr; }

/// The ops that `values` are computed by.
DenseSet<Operation *> sliceOf(ArrayRef<Value> values) {
  DenseSet<Operation *> slice;
  SmallVector<Value> work(values);
  while (!work.empty())
    if (Operation *op = work.pop_back_val().getDefiningOp(); op && slice.insert(op).second)
      llvm::append_range(work, op->getOperands());
  return slice;
}

/// Operands of `op` that have `scale` and are not zero, which is a multiple of everything.
template <typename Keep> SmallVector<OpOperand *> operandsOf(Operation *op, OperandScale scale, Keep keep) {
  SmallVector<OpOperand *> found;
  for (OpOperand &operand : op->getOpOperands())
    if (isFloat(operand.get()) && scaleOf(operand) == scale && keep(operand.get()))
      found.push_back(&operand);
  return found;
}

/// A value's degree in the seed: a multiple of the seed, or not one. Values of the forward pass and constants are none.
enum class Degree { Unknown, Zero, One };

class SeedSearch {
public:
  SeedSearch(func::FuncOp function, ArrayRef<Value> fixed) : function(function) {
    gradients = llvm::to_vector(function.getOps<train::GradientOp>());
    SmallVector<Value> ends;
    for (train::GradientOp gradient : gradients)
      ends.push_back(gradient.getGradient());
    DenseSet<Operation *> forward = sliceOf(fixed), backward = sliceOf(ends);
    for (Operation &op : function.getBody().front())
      if (backward.contains(&op) && !forward.contains(&op) && op.getNumOperands() != 0 &&
          llvm::any_of(op.getResults(), isFloat)) {
        order[&op] = body.size();
        body.push_back(&op);
        for (Value result : op.getResults())
          degrees[result] = Degree::Unknown;
      }
  }

  Operation *run() {
    findZeros();
    measure();
    for (train::GradientOp gradient : gradients)
      setOne(gradient.getGradient());
    do
      while (sweep(/*decides=*/false)) {
      }
    while (sweep(/*decides=*/true));
    if (Operation *culprit = place())
      return culprit;
    for (OpOperand *edge : edges)
      scale(*edge);
    for (Value value : values)
      scale(value);
    return nullptr;
  }

private:
  /// How good a beginning is: gradients that it reaches, whether it is a constant, how small and how early it is.
  using Rank = std::tuple<unsigned, bool, int64_t, int64_t>;

  Degree degree(Value value) const {
    auto found = degrees.find(value);
    return found == degrees.end() ? Degree::Zero : found->second;
  }
  bool fitsAny(Value value) const { return anyDegree.contains(value) || isZero(value); }
  auto counts() const {
    return [this](Value value) { return !fitsAny(value); };
  }
  void setOne(Value value) {
    if (auto found = degrees.find(value); found != degrees.end() && found->second == Degree::Unknown) {
      found->second = Degree::One;
      changed = true;
    }
  }
  /// The value and the values it is computed from are no multiples.
  void setZero(Value value) {
    SmallVector<Value> work{value};
    while (!work.empty()) {
      Value next = work.pop_back_val();
      auto found = degrees.find(next);
      if (found == degrees.end() || found->second != Degree::Unknown)
        continue;
      found->second = Degree::Zero;
      changed = true;
      for (Value operand : next.getDefiningOp()->getOperands())
        work.push_back(operand);
    }
  }

  /// Sums of zeros, and operands in which nothing is linear.
  void findZeros() {
    for (Operation *op : body) {
      bool any = isa<Linearity>(op);
      for (OpOperand &operand : op->getOpOperands())
        any &= !isFloat(operand.get()) || scaleOf(operand) != OperandScale::Shared || fitsAny(operand.get());
      any &= !operandsOf(op, OperandScale::Shared, [](Value) { return true; }).empty();
      if (any)
        anyDegree.insert(op->result_begin(), op->result_end());
    }
    for (Operation *op : body)
      for (OpOperand *operand : operandsOf(op, OperandScale::Fixed, counts()))
        setZero(operand->get());
  }

  /// Ranks of the best beginning on the way to each value.
  void measure() {
    DenseMap<Operation *, llvm::BitVector> reached;
    for (Operation *op : llvm::reverse(body)) {
      llvm::BitVector &own = reached[op];
      own.resize(gradients.size());
      for (Operation *user : op->getUsers())
        if (auto found = reached.find(user); found != reached.end() && user != op)
          own |= found->second;
      for (auto [i, gradient] : llvm::enumerate(gradients))
        if (gradient.getGradient().getDefiningOp() == op)
          own.set(i);
    }
    for (Operation *op : body) {
      auto begin = [&](Value at) {
        return Rank(reached[op].count(), isConstant(at), -tensorType(at).getNumElements(), -order[op]);
      };
      auto through = [&](OpOperand *operand) {
        auto found = ranks.find(operand->get());
        return found == ranks.end() ? begin(operand->get()) : found->second;
      };
      Value first = *llvm::find_if(op->getResults(), isFloat);
      Rank best = begin(first);
      auto shared = operandsOf(op, OperandScale::Shared, counts());
      if (!shared.empty()) {
        Rank least = through(shared.front());
        for (OpOperand *operand : shared)
          least = std::min(least, through(operand));
        best = std::max(best, least);
      }
      for (OpOperand *operand : operandsOf(op, OperandScale::Factor, counts()))
        best = std::max(best, through(operand));
      for (Value result : op->getResults())
        ranks.insert({result, best});
    }
  }

  bool isOne(Operation *op) const {
    return llvm::any_of(op->getResults(), [&](Value result) { return degree(result) == Degree::One; });
  }

  /// From results to operands, last op first; with `decides`, takes the better of two unknown factors once. True where
  /// something became known.
  bool sweep(bool decides) {
    changed = false;
    for (Operation *op : llvm::reverse(body)) {
      if (!isOne(op))
        continue;
      for (OpOperand *operand : operandsOf(op, OperandScale::Shared, counts()))
        setOne(operand->get());
      auto factors = operandsOf(op, OperandScale::Factor, counts());
      OpOperand *one = nullptr;
      SmallVector<OpOperand *> unknown;
      for (OpOperand *factor : factors) {
        if (degree(factor->get()) == Degree::One)
          one = factor;
        if (degree(factor->get()) == Degree::Unknown)
          unknown.push_back(factor);
      }
      if (!one && unknown.size() == 1 && factors.size() > 1)
        setOne((one = unknown.front())->get());
      if (!one && unknown.size() > 1 && decides) {
        one = *llvm::max_element(
            unknown, [&](OpOperand *a, OpOperand *b) { return ranks.lookup(a->get()) < ranks.lookup(b->get()); });
        setOne(one->get());
      }
      for (OpOperand *factor : factors)
        if (one && factor != one)
          setZero(factor->get());
      if (decides && changed)
        return true;
    }
    return changed;
  }

  /// Where multiples begin: operands and values that have to be multiplied. Returns the op before which it is too late.
  Operation *place() {
    DenseSet<Operation *> late; // ops behind a contraction of the backward pass
    auto isLate = [&](Value value) { return late.contains(value.getDefiningOp()); };
    auto begin = [&](OpOperand *operand) -> Operation * {
      edges.push_back(operand);
      return isLate(operand->get()) ? operand->getOwner() : nullptr;
    };
    for (Operation *op : body) {
      auto semantics = dyn_cast<PrecisionSemantics>(op);
      if ((semantics && semantics.getNumericClass() == NumericClass::Contraction) ||
          llvm::any_of(op->getOperands(), isLate))
        late.insert(op);
      if (!isOne(op))
        continue;
      SmallVector<OpOperand *> starts;
      if (!follows(op, starts)) {
        values.push_back(*llvm::find_if(op->getResults(), isFloat));
        if (late.contains(op))
          return op;
      }
      for (OpOperand *start : starts)
        if (Operation *culprit = begin(start))
          return culprit;
    }
    for (train::GradientOp gradient : gradients)
      if (degree(gradient.getGradient()) != Degree::One && !fitsAny(gradient.getGradient()))
        if (Operation *culprit = begin(&gradient.getGradientMutable()))
          return culprit;
    return nullptr;
  }

  /// True where the result is a multiple because operands are, with `starts` the operands that become so here.
  bool follows(Operation *op, SmallVectorImpl<OpOperand *> &starts) const {
    auto isStart = [&](OpOperand *operand) { return degree(operand->get()) != Degree::One; };
    auto shared = operandsOf(op, OperandScale::Shared, counts()),
         factors = operandsOf(op, OperandScale::Factor, counts());
    if (!shared.empty()) {
      llvm::copy_if(shared, std::back_inserter(starts), isStart);
      bool constants = llvm::all_of(starts, [](OpOperand *start) { return isConstant(start->get()); });
      if (starts.size() < shared.size() || constants)
        return true;
      starts.clear();
      return false;
    }
    if (llvm::any_of(factors, [&](OpOperand *factor) { return !isStart(factor); }))
      return true;
    llvm::erase_if(factors, [](OpOperand *factor) { return !isConstant(factor->get()); });
    if (factors.empty())
      return false;
    starts.push_back(*llvm::min_element(factors, [](OpOperand *a, OpOperand *b) {
      return tensorType(a->get()).getNumElements() < tensorType(b->get()).getNumElements();
    }));
    return true;
  }

  static Value seedOf(OpBuilder &builder, Location loc, Value value) {
    Value one = GraphBuilder(builder, loc).scalar(builder.getF32Type(), 1.0);
    auto seed = train::ScaleLossOp::create(builder, loc, value, one);
    setAttr<MPTDialect::SeedAttrHelper>(seed, builder.getUnitAttr());
    return seed;
  }

  /// Multiplies one operand; of a constant with one value everywhere, that value.
  void scale(OpOperand &operand) {
    Value value = operand.get();
    Value &scaled = scaledValues[value];
    if (!scaled) {
      OpBuilder builder(operand.getOwner());
      if (!isConstant(value))
        builder.setInsertionPointAfterValue(value);
      GraphBuilder b(builder, operand.getOwner()->getLoc());
      auto constant = value.getDefiningOp<ConstantOp>();
      auto dense = constant ? dyn_cast<DenseFPElementsAttr>(constant.getValue()) : DenseFPElementsAttr();
      RankedTensorType type = tensorType(value);
      if (dense && dense.isSplat() && type.getRank() > 0) {
        auto scalar = RankedTensorType::get({}, type.getElementType());
        Value number = b.constant(DenseElementsAttr::get(scalar, dense.getSplatValue<APFloat>()));
        scaled = b.broadcast(seedOf(builder, b.loc, number), type.getShape(), {});
      } else {
        scaled = seedOf(builder, b.loc, value);
      }
    }
    operand.set(scaled);
  }

  static void scale(Value value) {
    OpBuilder builder(value.getContext());
    builder.setInsertionPointAfterValue(value);
    Value seed = seedOf(builder, value.getLoc(), value);
    value.replaceAllUsesExcept(seed, seed.getDefiningOp());
  }

  func::FuncOp function;
  SmallVector<train::GradientOp> gradients;
  std::vector<Operation *> body; ///< of the backward pass alone, in order
  DenseMap<Operation *, int64_t> order;
  DenseMap<Value, Degree> degrees; ///< of the results of `body`
  DenseSet<Value> anyDegree;
  DenseMap<Value, Rank> ranks;
  SmallVector<OpOperand *> edges;
  SmallVector<Value> values;
  DenseMap<Value, Value> scaledValues;
  bool changed = false;
};

} // namespace

/// Whoever scales the loss looks for seeds: where these do not hold, there are none.
static void dropSeeds(func::FuncOp function) {
  for (auto seed : llvm::make_early_inc_range(function.getOps<train::ScaleLossOp>()))
    if (hasAttr<MPTDialect::SeedAttrHelper>(seed)) {
      seed.getResult().replaceAllUsesWith(seed.getSeed());
      seed.erase();
    }
}

Operation *mpt::markSeeds(func::FuncOp function, ArrayRef<Value> fixed) {
  bool marked =
      llvm::any_of(function.getBody().front(), [](Operation &op) { return hasAttr<MPTDialect::SeedAttrHelper>(&op); });
  Operation *culprit = marked ? nullptr : SeedSearch(function, fixed).run();
  if (!culprit)
    culprit = checkSeeds(function, fixed);
  if (culprit)
    dropSeeds(function);
  return culprit;
}
