// SPDX-License-Identifier: Apache-2.0
// --fusion-recompute: computes values again in the backward pass instead of keeping them in memory until then.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Interfaces/GemmLike.h"
#include "mpt/Support/MinCut.h"
#include "passes/fusion/Passes.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"

namespace mpt {
#define GEN_PASS_DEF_RECOMPUTE
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t unit = 16;         ///< price of a byte kept
constexpr int64_t passPrice = 2;     ///< of a byte made again in memory: a value that saves next to nothing is kept
constexpr int64_t smallSpace = 4096; ///< elements below which keeping a value costs nothing to speak of
constexpr double flopsPerByte = 4;   ///< what a processor's products do in the time in which memory moves a byte
constexpr int64_t costlyBytes = 24;  ///< bytes moved in the time that an exponential, error function or the like takes
constexpr size_t maxLeaves = 2;      ///< values of its size that a value is made again from, when nothing forces it

/// In memory whatever happens: inputs, state, constants.
bool isGiven(Value value) {
  Operation *op = value.getDefiningOp();
  return !op || isa<train::ReadOp, ConstantOp>(op);
}
/// Shows its operand's elements.
bool isView(Operation *op) { return isViewOp(op) && op->getNumOperands() == 1; }
Value rootOf(Value value) {
  while (value.getDefiningOp() && isView(value.getDefiningOp()))
    value = value.getDefiningOp()->getOperand(0);
  return value;
}

/// A kernel can make the op's result from its operands at the same index.
bool isArithmetic(Operation *op) {
  auto lowering = dyn_cast_or_null<LoopLowering>(op);
  if (!lowering || isViewOp(op) || isa<ReduceOp>(op) || op->getNumResults() != 1 || lowering.standsAlone())
    return false;
  if (auto role = dyn_cast<FusionRole>(op); role && role.isMadeAgain())
    return true;
  for (OpOperand &operand : op->getOpOperands())
    if (!lowering.readsOwnIndex(operand.getOperandNumber()) && countOf(operand.get()) != 1)
      return false;
  return op->getNumOperands() != 0;
}

/// More than one operand has as many elements as the result.
bool readsSeveral(Operation *op) {
  llvm::SmallPtrSet<void *, 2> full;
  for (Value operand : op->getOperands())
    if (countOf(operand) == countOf(op->getResult(0)) &&
        !isa_and_nonnull<ConstantOp, BroadcastOp>(operand.getDefiningOp()))
      full.insert(operand.getAsOpaquePointer());
  return full.size() > 1;
}

/// The kernel of `use`'s owner can make the operand itself.
bool canBeMadeInside(OpOperand &use) {
  auto lowering = dyn_cast<LoopLowering>(use.getOwner());
  return lowering && !isViewOp(use.getOwner()) && !lowering.standsAlone() &&
         (isa<ReduceOp, BroadcastOp>(use.getOwner()) || lowering.readsOwnIndex(use.getOperandNumber()));
}

/// One function: a network in which the cheapest cut is what to keep. Every value is an edge of its size; what the
/// backward pass reads is on one side, what cannot be computed again on the other (the partitioning of Chen et al.,
/// "Training deep nets with sublinear memory cost", arXiv:1604.06174, solved as a minimum cut over bytes).
class Partition {
public:
  Partition(func::FuncOp function, bool device) : device(device), backward(backwardOps(function)) {
    // What only the backward pass reads is computed there: fusion-form joins it with its readers.
    for (Operation &op : llvm::reverse(function.getBody().front()))
      if (!op.use_empty() && op.getNumOperands() != 0 && (isView(&op) || isArithmetic(&op)) &&
          llvm::all_of(op.getUsers(), [&](Operation *user) { return backward.contains(user); }))
        backward.insert(&op);
    for (Operation &op : function.getBody().front())
      if (backward.contains(&op))
        for (OpOperand &operand : op.getOpOperands())
          addUse(operand);
  }

  struct Cost {
    int64_t kept;  ///< bytes kept for the backward pass
    int64_t moved; ///< bytes read and written, and the like of costly arithmetic, to make values again in memory of
                   ///< their own
  };
  /// What it costs when the first `given` candidates may be made again. `moderate`: those that would be made from more
  /// than maxLeaves values are not: along a chain of residual sums each would be made from all that came before.
  Cost solve(size_t given, bool moderate);
  /// Orders the candidates: inputs' casts first, then cheap arithmetic, then the rest, each by size.
  void orderCandidates();
  size_t freeCandidates() const { return free; }
  size_t candidates() const { return all; }
  int64_t rewrite();

private:
  /// How a value is made again from what is kept.
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
    if (value == root && canBeMadeInside(use))
      inside.insert(value);
    else
      stored.insert(root);
  }
  void need(Value value) {
    if (!isGiven(value))
      network.addEdge(MinCut::kSource, nodeOf(value).second, MinCut::kInfinite);
  }
  bool mayRepeat(Value value) const {
    Operation *op = value.getDefiningOp();
    if (isView(op))
      return true;
    if (!isArithmetic(op) || backward.contains(op))
      return false;
    // A sum of sums along a chain would be read from all of its terms, at every link.
    if (device && readsSeveral(op))
      return false;
    // A view of it would have to lie in memory again.
    return countOf(value) > smallSpace && (candidate(value) || llvm::none_of(value.getUsers(), isViewOp));
  }
  bool candidate(Value value) const { return stored.contains(value) && !inMemory.contains(value); }
  /// Where the value is used, and where it is made: cut between them, it is kept.
  std::pair<int, int> nodeOf(Value value) {
    if (auto known = nodes.find(value); known != nodes.end())
      return known->second;
    std::pair<int, int> node{network.addNode(), network.addNode()};
    std::swap(node.first, node.second); // first: made, second: used
    nodes[value] = node;
    int64_t price = inMemory.contains(value) ? 0 : bytesOf(value) * unit;
    // A value that stayed inside a kernel would have to be written, too.
    if (price && isArithmetic(value.getDefiningOp()) && llvm::all_of(value.getUses(), canBeMadeInside))
      price += bytesOf(value);
    network.addEdge(node.second, node.first, isView(value.getDefiningOp()) ? MinCut::kInfinite : price);
    if (paid.contains(value))
      network.addEdge(node.first, MinCut::kSink, bytesOf(value) * passPrice);
    if (inMemory.contains(value))
      return node;
    if (!mayRepeat(value)) {
      network.addEdge(node.first, MinCut::kSink, MinCut::kInfinite);
      return node;
    }
    for (Value operand : value.getDefiningOp()->getOperands())
      if (!isGiven(operand))
        network.addEdge(node.first, nodeOf(operand).second, MinCut::kInfinite);
    return node;
  }
  bool isRepeated(Value value) const {
    auto known = nodes.find(value);
    return known != nodes.end() && network.onSourceSide(known->second.first) && !inMemory.contains(value);
  }
  bool isFromInputs(Value value, unsigned depth = 0) const {
    if (isGiven(value))
      return true;
    Operation *op = value.getDefiningOp();
    return depth < 8 && isArithmetic(op) && (isa<BroadcastOp>(op) || cast<LoopLowering>(op).isCheap()) &&
           llvm::all_of(op->getOperands(), [&](Value operand) { return isFromInputs(operand, depth + 1); });
  }

  const bool device; ///< traffic counts more than what is kept
  llvm::DenseSet<Operation *> backward;
  llvm::SetVector<Value> inside;  ///< values that backward kernels read, and can make themselves
  llvm::SetVector<Value> stored;  ///< values that the backward pass wants in memory: for library calls and views
  size_t free = 0, all = 0;       ///< how many of them come for nothing, or can be had at all
  llvm::DenseSet<Value> inMemory; ///< those that are kept in any case
  llvm::DenseSet<Value> paid;     ///< those that may be made again by a pass over memory
  MinCut network;
  llvm::DenseMap<Value, std::pair<int, int>> nodes;
};

} // namespace

void Partition::follow(Value value, int64_t count, Chain &chain, llvm::SmallDenseSet<Value> &seen) const {
  if (chain.leaves.size() > maxLeaves || !seen.insert(value).second)
    return;
  Operation *op = value.getDefiningOp();
  if (!isView(op) && !cast<LoopLowering>(op).isCheap() && countOf(value) >= count)
    ++chain.costly;
  for (Value operand : op->getOperands()) {
    Value root = rootOf(operand);
    if (!isGiven(root) && isRepeated(root))
      follow(root, count, chain, seen);
    else if (countOf(operand) >= count && !root.getDefiningOp<ConstantOp>())
      chain.leaves.insert(root);
  }
}

Partition::Cost Partition::solveCut(size_t given, const llvm::DenseSet<Value> &refused) {
  network = MinCut();
  nodes.clear();
  inMemory.clear();
  paid.clear();
  Cost cost{0, 0};
  for (auto [i, value] : llvm::enumerate(stored)) {
    if (i >= given || refused.contains(value)) {
      inMemory.insert(value);
      cost.kept += bytesOf(value);
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
      cost.kept += bytesOf(value);
  for (Value value : paid)
    if (isRepeated(value)) {
      Chain chain = chainOf(value);
      cost.moved += (1 + chain.leaves.size()) * bytesOf(value) + chain.costly * countOf(value) * costlyBytes;
    }
  return cost;
}

Partition::Cost Partition::solve(size_t given, bool moderate) {
  llvm::DenseSet<Value> refused;
  while (true) {
    Cost cost = solveCut(given, refused);
    if (!moderate)
      return cost;
    // In the order of the program: what is refused is kept, and ends the chains of those that follow.
    size_t before = refused.size();
    for (Operation &op : *(*backward.begin())->getBlock())
      for (Value value : op.getResults())
        if (paid.contains(value) && isRepeated(value) && chainOf(value).leaves.size() > maxLeaves) {
          refused.insert(value);
          inMemory.insert(value);
        }
    if (refused.size() == before)
      return cost;
  }
}

void Partition::orderCandidates() {
  SmallVector<Value> sorted(stored.begin(), stored.end());
  auto rank = [&](Value value) {
    Operation *op = value.getDefiningOp();
    if (!isArithmetic(op) || countOf(value) <= smallSpace)
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

int64_t Partition::rewrite() {
  int64_t repeated = 0;
  // The backward ops of one forward op share what they make again.
  llvm::DenseMap<std::pair<Value, Attribute>, Value> made;
  SmallVector<Operation *> users;
  for (Operation &op : *(*backward.begin())->getBlock())
    if (backward.contains(&op))
      users.push_back(&op);
  for (Operation *user : users) {
    OpBuilder builder(user);
    auto again = [&](auto &self, Value value) -> Value {
      Operation *op = value.getDefiningOp();
      if (isGiven(value) || (!isView(op) && !isRepeated(value)))
        return value;
      if (Value known = made.lookup({value, Attribute(user->getLoc())}))
        return known;
      SmallVector<Value> operands;
      for (Value operand : op->getOperands())
        operands.push_back(self(self, operand));
      if (isView(op) && operands[0] == op->getOperand(0))
        return value;
      Operation *copy = builder.clone(*op);
      copy->setOperands(operands);
      if (!isView(copy)) {
        setAttr<MPTDialect::RecomputedAttrHelper>(copy);
        ++repeated;
      }
      return made[{value, Attribute(user->getLoc())}] = copy->getResult(0);
    };
    for (OpOperand &operand : user->getOpOperands())
      if (Operation *source = operand.get().getDefiningOp(); source && !backward.contains(source))
        operand.set(again(again, operand.get()));
  }
  return repeated;
}

namespace {

double contractionFlops(func::FuncOp function) {
  double flops = 0;
  for (auto op : function.getBody().front().getOps<GemmLike>())
    flops += 2.0 * op.getReductionLength() * countOf(op->getResult(0));
  return flops;
}

struct Recompute : mpt::impl::RecomputeBase<Recompute> {
  using RecomputeBase::RecomputeBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal() || backwardOps(function).empty())
        continue;
      Partition partition(function, device);
      partition.orderCandidates();
      size_t count = partition.freeCandidates();
      if (!device) {
        // As much as takes a small share of the time that the products need.
        double limit = effort / 100 * contractionFlops(function) / flopsPerByte;
        count = *llvm::partition_point(llvm::seq(count, partition.candidates()),
                                       [&](size_t given) { return partition.solve(given + 1, true).moved <= limit; });
      }
      auto cost = partition.solve(count, true);
      if (bytes > 0) {
        // The fewest further candidates that give up enough.
        count = *llvm::partition_point(llvm::seq(count, partition.candidates()), [&](size_t given) {
          return cost.kept - partition.solve(given, false).kept < bytes;
        });
        cost = partition.solve(count, false);
      }
      keptBytes += cost.kept;
      numRepeated += partition.rewrite();
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
