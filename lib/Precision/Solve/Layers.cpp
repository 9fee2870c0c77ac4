// SPDX-License-Identifier: Apache-2.0
// Walks a function forward and backward for the contractions before and after each GEMM.
#include "mpt/Precision/Layers.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"
#include "mpt/Interfaces/Interfaces.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mpt;

static bool isFloatTensor(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

static unsigned bit(policy::Predicate predicate) { return 1u << static_cast<unsigned>(predicate); }

namespace {
/// Finds the forward contractions that a contraction of a foreign backward pass belongs to, by their operands.
class Kinship {
public:
  explicit Kinship(const DenseSet<Value> &weights) : weights(weights) {}

  /// A contraction of the forward pass with its properties.
  void add(Operation *op, unsigned properties) {
    for (Value operand : op->getOperands())
      if (weights.contains(operand))
        for (StringRef state : statesOf(operand))
          byWeight[state] |= properties;
      else if (Value base = baseOf(operand))
        byOperand[base] |= properties;
  }

  /// A gradient of data reads the layer's weight, one of a weight is for that weight; attention has neither, but reads
  /// the operands of the forward pass.
  std::optional<unsigned> find(Operation *op) const {
    for (Value operand : op->getOperands())
      if (weights.contains(operand))
        if (auto known = ofStates(statesOf(operand)))
          return known;
    if (auto known = ofStates(trainedBy(op)))
      return known;
    for (Value operand : op->getOperands())
      if (auto known = byOperand.find(baseOf(operand)); known != byOperand.end())
        return known->second;
    return std::nullopt;
  }

private:
  std::optional<unsigned> ofStates(ArrayRef<StringRef> states) const {
    for (StringRef state : states)
      if (auto known = byWeight.find(state); known != byWeight.end())
        return known->second;
    return std::nullopt;
  }

  /// The parameters that a weight is made of.
  SmallVector<StringRef> statesOf(Value weight) const {
    SmallVector<StringRef> states;
    SmallVector<Value> work{weight};
    DenseSet<Value> seen;
    while (!work.empty()) {
      Value value = work.pop_back_val();
      if (!weights.contains(value) || !seen.insert(value).second)
        continue;
      if (auto read = value.getDefiningOp<train::ReadOp>())
        states.push_back(read.getState());
      else
        llvm::append_range(work, value.getDefiningOp()->getOperands());
    }
    return states;
  }

  /// The parameters whose gradient `op` makes, with no other contraction in between.
  static SmallVector<StringRef> trainedBy(Operation *op) {
    SmallVector<StringRef> states;
    SmallVector<Operation *> work(op->user_begin(), op->user_end());
    DenseSet<Operation *> seen;
    while (!work.empty()) {
      Operation *user = work.pop_back_val();
      if (!seen.insert(user).second || isContraction(user))
        continue;
      if (auto gradient = dyn_cast<train::GradientOp>(user))
        states.push_back(gradient.getParameter());
      else
        work.append(user->user_begin(), user->user_end());
    }
    return states;
  }

  /// The value that `value` is a view or a cast of; null where it is no float.
  static Value baseOf(Value value) {
    while (isFloatTensor(value)) {
      Operation *op = value.getDefiningOp();
      auto semantics = dyn_cast_or_null<PrecisionSemantics>(op);
      if (!semantics || op->getNumOperands() != 1 || semantics.getNumericClass() != NumericClass::Movement ||
          !isFloatTensor(op->getOperand(0)))
        return value;
      value = op->getOperand(0);
    }
    return {};
  }

  const DenseSet<Value> &weights;
  llvm::StringMap<unsigned> byWeight;
  DenseMap<Value, unsigned> byOperand;
};

/// The contractions of both passes, each in order, and the weights that they read.
class Contractions {
public:
  explicit Contractions(func::FuncOp function) : parts(function) {
    for (auto state : function->getParentOfType<ModuleOp>().getOps<train::StateOp>())
      if (state.getRole() == train::Role::parameter || state.getRole() == train::Role::master)
        parameters.insert(state.getSymName());
    for (Operation &op : function.getBody().front())
      visit(&op);
    markLast(function.getBody().front());
  }

  DenseSet<Value> weights;
  SmallVector<Operation *> forward, backward;
  DenseMap<Operation *, unsigned> properties; // of the forward ones

private:
  /// What an op's operands have in common.
  struct Reads {
    bool gradient = false, after = false, weighted = false, plain = false;
  };
  Reads readsOf(Operation *op) const {
    Reads reads;
    for (Value operand : op->getOperands()) {
      reads.after |= behind.contains(operand);
      reads.gradient |= parts.isGradient(operand);
      if (!isFloatTensor(operand))
        continue;
      bool isWeight = weights.contains(operand);
      reads.weighted |= isWeight;
      Operation *source = operand.getDefiningOp();
      reads.plain |= !isWeight && !(source && source->hasTrait<OpTrait::ConstantLike>());
    }
    return reads;
  }

  void visit(Operation *op) {
    if (auto read = dyn_cast<train::ReadOp>(op); read && parameters.contains(read.getState()))
      weights.insert(read.getValue());
    const bool contracts = isContraction(op);
    const Reads reads = readsOf(op);
    if (reads.gradient) {
      if (contracts)
        backward.push_back(op);
      return;
    }
    if (contracts) {
      forward.push_back(op);
      properties[op] =
          (reads.after ? 0 : bit(policy::Predicate::first)) | (reads.weighted ? 0 : bit(policy::Predicate::unweighted));
    }
    if (contracts || reads.after)
      behind.insert(op->result_begin(), op->result_end());
    if (reads.weighted && !reads.plain && !contracts)
      weights.insert(op->result_begin(), op->result_end());
  }

  void markLast(Block &body) {
    DenseSet<Value> reaching;
    for (Operation &op : llvm::reverse(body)) {
      if (llvm::any_of(op.getResults(), [&](Value result) { return parts.isGradient(result); }))
        continue; // the backward pass reads values of the forward pass
      auto known = properties.find(&op);
      bool reaches = known != properties.end();
      bool before = llvm::any_of(op.getResults(), [&](Value result) { return reaching.contains(result); });
      if (reaches && !before)
        known->second |= bit(policy::Predicate::last);
      if (reaches || before)
        reaching.insert(op.getOperands().begin(), op.getOperands().end());
    }
  }

  TrainingParts parts;
  DenseSet<StringRef> parameters;
  DenseSet<Value> behind; // a contraction
};
} // namespace

Layers::Layers(func::FuncOp function) {
  Contractions contractions(function);
  properties = contractions.properties;
  // Our own gradient ops carry the location of their forward op. Gradient ops of a file have their own.
  DenseMap<Location, unsigned> places;
  Kinship kinship(contractions.weights);
  for (Operation *op : contractions.forward) {
    places[op->getLoc()] |= properties[op];
    kinship.add(op, properties[op]);
  }
  for (Operation *op : contractions.backward) {
    auto place = places.find(op->getLoc());
    if (std::optional<unsigned> found = place != places.end() ? place->second : kinship.find(op))
      properties[op] = *found;
  }
}

bool Layers::is(policy::Predicate predicate, Operation *op) const {
  auto known = properties.find(op);
  return known != properties.end() && known->second & bit(predicate);
}
