// SPDX-License-Identifier: Apache-2.0
// Chooses the values to keep for the backward pass: a minimum cut over bytes.
#include "mpt/Fusion/Rematerialization.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Fusion/StepCost.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Support/MinCut.h"
#include "mpt/Support/Refusal.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"

#define DEBUG_TYPE "fusion-rematerialize"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t unit = 16;     ///< price of a byte kept
constexpr int64_t passPrice = 2; ///< of a byte rematerialized in memory: a value that saves next to nothing is kept
constexpr int64_t smallTensor = 4096; ///< elements below which keeping a value costs nothing to speak of
constexpr size_t maxLeaves = 2; ///< values of its size that a value is rematerialized from, when nothing forces it

/// Whether the value is in memory whatever happens: inputs, state, constants.
bool isGiven(Value value) {
  Operation *op = value.getDefiningOp();
  return !op || isConstant(op) || isa<train::ReadOp>(op);
}
/// The value whose elements the views of `value` show.
Value rootOf(Value value) {
  while (isOperandView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// Whether a kernel can compute the op's result from its operands at the same index. False for null.
bool isArithmetic(Operation *op) {
  auto lowering = dyn_cast_or_null<LoopLowering>(op);
  if (!lowering || isViewOp(op) || isReduction(op) || op->getNumResults() != 1 || lowering.standsAlone())
    return false;
  if (isRematerializedByReaders(op))
    return true;
  for (OpOperand &operand : op->getOpOperands())
    if (!lowering.readsOwnIndex(operand.getOperandNumber()) && countOf(operand.get()) != 1)
      return false;
  return op->getNumOperands() != 0;
}

/// Whether more than one operand has as many elements as the result.
bool readsSeveral(Operation *op) {
  llvm::SmallPtrSet<void *, 2> full;
  for (Value operand : op->getOperands())
    if (countOf(operand) == countOf(op->getResult(0)) && !isConstant(operand.getDefiningOp()) &&
        !isBroadcast(operand.getDefiningOp()))
      full.insert(operand.getAsOpaquePointer());
  return full.size() > 1;
}

/// Whether the kernel of `use`'s owner can compute the operand itself.
bool canBeComputedInside(OpOperand &use) {
  auto lowering = dyn_cast<LoopLowering>(use.getOwner());
  return lowering && !isViewOp(use.getOwner()) && !lowering.standsAlone() &&
         (isReduction(use.getOwner()) || isBroadcast(use.getOwner()) || lowering.readsOwnIndex(use.getOperandNumber()));
}

/// One function: a network in which the cheapest cut is the values to keep. Every value is an edge of its size; values
/// that the backward pass reads are on one side, ones that cannot be rematerialized on the other (the partitioning of
/// Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174, solved as a minimum cut over bytes).
class Rematerializer {
public:
  Rematerializer(func::FuncOp function, bool memoryBound, const CodedActivations *coded)
      : memoryBound(memoryBound), coded(coded), backward(backwardOps(function)) {
    // Ops that only the backward pass reads are computed there: fusion-form joins them with their readers. Not ops that
    // make a value smaller: it is kept for less.
    for (Operation &op : llvm::reverse(function.getBody().front()))
      if (!op.use_empty() && op.getNumOperands() != 0 && !storesFewerBytes(&op) &&
          (isOperandView(&op) || isArithmetic(&op)) &&
          llvm::all_of(op.getUsers(), [&](Operation *user) { return backward.contains(user); }))
        backward.insert(&op);
    for (Operation &op : function.getBody().front())
      if (backward.contains(&op))
        for (OpOperand &operand : op.getOpOperands())
          addUse(operand);
  }

  struct Cost {
    int64_t kept;  ///< bytes kept for the backward pass
    int64_t moved; ///< bytes read and written, and the like of costly arithmetic, to rematerialize values in memory of
                   ///< their own
  };
  /// The cost when the first `given` candidates may be rematerialized. `moderate`: candidates that would need more than
  /// maxLeaves values are not: along a chain of residual sums each would need all that came before.
  Cost solve(size_t given, bool moderate);
  /// Orders the candidates: inputs' casts first, then cheap arithmetic, then the rest, each by size.
  void orderCandidates();
  size_t freeCandidates() const { return free; }
  size_t candidates() const { return all; }
  int64_t rewrite();
  void explainKept() const;

private:
  /// How a value is rematerialized from kept values.
  struct Chain {
    llvm::SmallDenseSet<Value> leaves; ///< kept values of its size; more than maxLeaves are not looked for
    int64_t costly = 0;                ///< operations that take their time
  };
  Cost solveCut(size_t given, const llvm::DenseSet<Value> &refused);
  void follow(Value value, int64_t count, Chain &chain, llvm::SmallDenseSet<Value> &seen) const;
  Chain chainOf(Value value) const {
    Chain chain;
    llvm::SmallDenseSet<Value> seen;
    follow(value, countOf(value), chain, seen);
    return chain;
  }

  void addUse(OpOperand &use) {
    Value value = use.get(), root = rootOf(value);
    if (isGiven(root) || !isa<RankedTensorType>(value.getType()))
      return;
    Operation *op = root.getDefiningOp();
    if (backward.contains(op))
      return;
    if (value == root && canBeComputedInside(use))
      inside.insert(value);
    else
      stored.insert(root);
  }
  void need(Value value) {
    if (!isGiven(value))
      network.addEdge(MinCut::kSource, nodeOf(value).second, MinCut::kInfinite);
  }
  bool mayRematerialize(Value value) const {
    Operation *op = value.getDefiningOp();
    if (isOperandView(op))
      return true;
    if (!isArithmetic(op) || backward.contains(op))
      return false;
    // A sum of sums along a chain would be read from all of its terms, at every link.
    if (memoryBound && readsSeveral(op))
      return false;
    // A view of it would have to be written once more.
    return countOf(value) > smallTensor && (candidate(value) || llvm::none_of(value.getUsers(), isViewOp));
  }
  bool candidate(Value value) const { return stored.contains(value) && !inMemory.contains(value); }
  /// Where the value is used, and where it is made: cut between them, it is kept.
  std::pair<int, int> nodeOf(Value value) {
    if (auto known = nodes.find(value); known != nodes.end())
      return known->second;
    std::pair<int, int> node{network.addNode(), network.addNode()};
    std::swap(node.first, node.second); // first: made, second: used
    nodes[value] = node;
    int64_t price = inMemory.contains(value) ? 0 : keptBytes(value) * unit;
    // A value that stayed inside a kernel would have to be written, too.
    if (price && isArithmetic(value.getDefiningOp()) && llvm::all_of(value.getUses(), canBeComputedInside))
      price += keptBytes(value);
    network.addEdge(node.second, node.first, isOperandView(value.getDefiningOp()) ? MinCut::kInfinite : price);
    if (paid.contains(value))
      network.addEdge(node.first, MinCut::kSink, bytesOf(value) * passPrice);
    if (inMemory.contains(value))
      return node;
    if (!mayRematerialize(value)) {
      network.addEdge(node.first, MinCut::kSink, MinCut::kInfinite);
      return node;
    }
    for (Value operand : value.getDefiningOp()->getOperands())
      if (!isGiven(operand))
        network.addEdge(node.first, nodeOf(operand).second, MinCut::kInfinite);
    return node;
  }
  /// A value that waits as codes takes a byte an element.
  int64_t keptBytes(Value value) const { return coded && coded->contains(value) ? countOf(value) : bytesOf(value); }
  bool isRematerialized(Value value) const {
    auto known = nodes.find(value);
    return known != nodes.end() && network.onSourceSide(known->second.first) && !inMemory.contains(value);
  }
  bool isFromInputs(Value value, unsigned depth = 0) const {
    if (isGiven(value))
      return true;
    Operation *op = value.getDefiningOp();
    return depth < 8 && isArithmetic(op) && (isBroadcast(op) || cast<LoopLowering>(op).isCheap()) &&
           llvm::all_of(op->getOperands(), [&](Value operand) { return isFromInputs(operand, depth + 1); });
  }

  const bool memoryBound;              ///< traffic counts more than kept bytes
  const CodedActivations *const coded; ///< null: all values are kept as they are
  llvm::DenseSet<Operation *> backward;
  llvm::SetVector<Value> inside;  ///< values that backward kernels read, and can compute themselves
  llvm::SetVector<Value> stored;  ///< values that the backward pass wants in memory: for library calls and views
  size_t free = 0, all = 0;       ///< how many of them come for nothing, and can be had at all
  llvm::DenseSet<Value> inMemory; ///< values that are kept in any case
  llvm::DenseSet<Value> paid;     ///< values that may be rematerialized by a pass over memory
  MinCut network;
  llvm::DenseMap<Value, std::pair<int, int>> nodes;
};

} // namespace

void Rematerializer::follow(Value value, int64_t count, Chain &chain, llvm::SmallDenseSet<Value> &seen) const {
  if (chain.leaves.size() > maxLeaves || !seen.insert(value).second)
    return;
  Operation *op = value.getDefiningOp();
  if (!isOperandView(op) && !cast<LoopLowering>(op).isCheap() && countOf(value) >= count)
    ++chain.costly;
  for (Value operand : op->getOperands()) {
    Value root = rootOf(operand);
    if (!isGiven(root) && isRematerialized(root))
      follow(root, count, chain, seen);
    else if (countOf(operand) >= count && !isConstant(root.getDefiningOp()))
      chain.leaves.insert(root);
  }
}

Rematerializer::Cost Rematerializer::solveCut(size_t given, const llvm::DenseSet<Value> &refused) {
  network = MinCut();
  nodes.clear();
  inMemory.clear();
  paid.clear();
  Cost cost{0, 0};
  for (auto [i, value] : llvm::enumerate(stored)) {
    if (i >= given || refused.contains(value)) {
      inMemory.insert(value);
      cost.kept += keptBytes(value);
    } else if (i >= free) {
      paid.insert(value);
    }
  }
  for (Value value : stored)
    if (!inMemory.contains(value))
      need(value);
  for (Value value : inside)
    need(value);
  network.solve();
  for (auto [value, node] : nodes)
    if (!inMemory.contains(value) && network.onSourceSide(node.second) && !network.onSourceSide(node.first))
      cost.kept += keptBytes(value);
  for (Value value : paid)
    if (isRematerialized(value)) {
      Chain chain = chainOf(value);
      cost.moved += (1 + chain.leaves.size()) * bytesOf(value) + chain.costly * countOf(value) * kCostlyBytes;
    }
  return cost;
}

Rematerializer::Cost Rematerializer::solve(size_t given, bool moderate) {
  llvm::DenseSet<Value> refused;
  while (true) {
    Cost cost = solveCut(given, refused);
    if (!moderate)
      return cost;
    // In the order of the program: a refused value is kept, and ends the chains of later ones.
    size_t before = refused.size();
    for (Operation &op : *(*backward.begin())->getBlock())
      for (Value value : op.getResults())
        if (paid.contains(value) && isRematerialized(value) && chainOf(value).leaves.size() > maxLeaves) {
          refused.insert(value);
          inMemory.insert(value);
        }
    if (refused.size() == before)
      return cost;
  }
}

void Rematerializer::orderCandidates() {
  SmallVector<Value> sorted(stored.begin(), stored.end());
  auto rank = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (!isArithmetic(op) || countOf(value) <= smallTensor)
      return 3;
    return isFromInputs(value) ? 0 : cast<LoopLowering>(op).isCheap() ? 1 : 2;
  };
  llvm::stable_sort(sorted, [&](Value a, Value b) {
    int rankA = rank(a), rankB = rank(b);
    return std::make_pair(rankA, -bytesOf(a)) < std::make_pair(rankB, -bytesOf(b));
  });
  stored = llvm::SetVector<Value>(sorted.begin(), sorted.end());
  auto countBelow = [&](int limit) { return llvm::count_if(sorted, [&](Value value) { return rank(value) < limit; }); };
  free = countBelow(1), all = countBelow(3);
}

/// Says why operands of library calls and views are kept.
void Rematerializer::explainKept() const {
  for (Value value : stored)
    if (!isRematerialized(value))
      (void)(refuse(DEBUG_TYPE, value.getLoc())
             << "not rematerialized: expected "
             << (isArithmetic(value.getDefiningOp()) ? "fewer bytes moved, or more of them saved"
                                                     : "arithmetic at the result's own index"));
}

int64_t Rematerializer::rewrite() {
  explainKept();
  int64_t repeated = 0;
  // The backward ops of one forward op share the values that they rematerialize.
  llvm::DenseMap<std::pair<Value, Attribute>, Value> made;
  SmallVector<Operation *> users;
  for (Operation &op : *(*backward.begin())->getBlock())
    if (backward.contains(&op))
      users.push_back(&op);
  for (Operation *user : users) {
    OpBuilder builder(user);
    auto rematerialized = [&](auto &self, Value value) -> Value {
      Operation *op = value.getDefiningOp();
      if (isGiven(value) || (!isOperandView(op) && !isRematerialized(value)))
        return value;
      if (Value known = made.lookup({value, Attribute(user->getLoc())}))
        return known;
      SmallVector<Value> operands;
      for (Value operand : op->getOperands())
        operands.push_back(self(self, operand));
      if (isOperandView(op) && operands[0] == op->getOperand(0))
        return value;
      Operation *copy = builder.clone(*op);
      copy->setOperands(operands);
      if (!isOperandView(copy)) {
        setAttr<MPTDialect::RecomputedAttrHelper>(copy);
        ++repeated;
      }
      return made[{value, Attribute(user->getLoc())}] = copy->getResult(0);
    };
    for (OpOperand &operand : user->getOpOperands())
      if (Operation *source = operand.get().getDefiningOp(); source && !backward.contains(source))
        operand.set(rematerialized(rematerialized, operand.get()));
  }
  return repeated;
}

RematerializationResult mpt::rematerialize(func::FuncOp function, const RematerializationGoal &goal) {
  if (backwardOps(function).empty())
    return {};
  Rematerializer values(function, goal.memoryBound, goal.coded);
  values.orderCandidates();
  size_t count = values.freeCandidates();
  if (!goal.memoryBound) {
    // As much as takes a small share of the time that the contractions need.
    double limit = goal.effort / 100 * contractionFlops(function) / kFlopsPerByte;
    count = *llvm::partition_point(llvm::seq(count, values.candidates()),
                                   [&](size_t given) { return values.solve(given + 1, true).moved <= limit; });
  }
  Rematerializer::Cost cost = values.solve(count, true);
  if (goal.bytes > 0) {
    // The fewest further candidates that give up enough.
    count = *llvm::partition_point(llvm::seq(count, values.candidates()), [&](size_t given) {
      return cost.kept - values.solve(given, false).kept < goal.bytes;
    });
    cost = values.solve(count, false);
  }
  return {cost.kept, values.rewrite()};
}
