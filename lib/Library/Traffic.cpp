// SPDX-License-Identifier: Apache-2.0
// Lower bounds of kernels' traffic from the graph of fusions and library calls.
// Matcher: in a fusion, sums that need a grid, reductions that a select guards, and rows that gathers read.
#include "mpt/Library/Traffic.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::library;

namespace {

constexpr size_t kMostOps = 20000;

/// A value's elements are its operand's: nothing is moved.
bool isFree(Operation *op) {
  if (isViewOp(op))
    return true;
  auto fusion = dyn_cast<FusionOp>(op);
  return fusion && fusion.getNumResults() == 1 && isa<BroadcastOp, YieldOp>(fusion.getBody().front().front()) &&
         fusion.getBody().front().getOperations().size() <= 2;
}

/// One result's elements do not fit into one block.
bool needsGrid(ReduceOp op, const BlockMemory &block) {
  auto type = cast<RankedTensorType>(op.getX().getType());
  ArrayRef<int64_t> axes = op.getAxes();
  int64_t extent = 1;
  for (int64_t axis : axes)
    extent *= type.getDimSize(axis);
  bool alongRow = !axes.empty() && axes.front() == type.getRank() - static_cast<int64_t>(axes.size());
  return block.bytes && extent * (alongRow ? bytesOf(type.getElementType()) : block.sectorBytes) > block.bytes;
}

bool dependsOnGridSum(Value value, const BlockMemory &block, llvm::DenseMap<Value, bool> &known) {
  Operation *op = value.getDefiningOp();
  if (!op)
    return false;
  auto [slot, isNew] = known.try_emplace(value, false);
  if (!isNew)
    return slot->second;
  auto reduce = dyn_cast<ReduceOp>(op);
  bool result = (reduce && needsGrid(reduce, block)) ||
                llvm::any_of(op->getOperands(), [&](Value operand) { return dependsOnGridSum(operand, block, known); });
  return known[value] = result;
}

/// `value` serves nothing but reductions that are made only where sums from elsewhere do not do.
bool isGuarded(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    if (isa<YieldOp, SelectOp>(user))
      return false;
    auto reduce = dyn_cast<ReduceOp>(user);
    return reduce ? llvm::all_of(reduce->getUsers(),
                                 [&](Operation *reader) {
                                   auto select = dyn_cast<SelectOp>(reader);
                                   return select && select.getOnFalse() == reduce.getY();
                                 })
                  : isGuarded(user->getResult(0));
  });
}

/// Bytes that `fusion` reads of an input: of a table, the rows that it gathers; 0 where it reads it in need alone.
int64_t bytesRead(FusionOp fusion, unsigned input) {
  Value argument = fusion.getBody().front().getArgument(input);
  if (!argument.use_empty() && isGuarded(argument) && bytesOf(argument) > bytesOf(fusion.getOutputs()[0]))
    return 0;
  int64_t whole = bytesOf(fusion.getInputs()[input]), gathered = 0;
  for (OpOperand &use : fusion.getBody().front().getArgument(input).getUses()) {
    auto gather = dyn_cast<GatherOp>(use.getOwner());
    if (!gather || use.getOperandNumber() != 0)
      return whole;
    gathered += bytesOf(gather->getResult(0));
  }
  return std::min(whole, gathered);
}

class Bounds {
public:
  explicit Bounds(func::FuncOp function) {
    for (Operation &op : function.front()) {
      number[&op] = ops.size();
      ops.push_back(&op);
    }
    for (BlockArgument argument : function.getArguments())
      follow(argument, argument, bytesOf(argument));
    for (Operation *op : ops)
      if (!isFree(op))
        for (Value result : op->getResults())
          if (isa<RankedTensorType>(result.getType()))
            follow(result, result, bytesOf(result));
  }
  /// With `block`, a sum that it cannot hold ends a kernel.
  int64_t solve(const BlockMemory *block);

private:
  struct Reader {
    unsigned op;
    int64_t bytes;
  };
  struct Users {
    SmallVector<Reader> fusions; ///< in program order
    bool leaves = false;         ///< a library call, state or the outside takes the value
  };
  void follow(Value root, Value value, int64_t bytes);
  bool isCutBehind(Value value, const BlockMemory *block);

  SmallVector<Operation *> ops;
  llvm::DenseMap<Operation *, unsigned> number;
  llvm::MapVector<Value, Users> values;
};

} // namespace

/// Notes who takes `root`, of which `value` shows `bytes`.
void Bounds::follow(Value root, Value value, int64_t bytes) {
  values.insert({root, {}});
  for (OpOperand &use : value.getUses()) {
    Operation *op = use.getOwner();
    if (isFree(op)) {
      Value shown = op->getResult(0);
      follow(root, shown, op->getNumOperands() > 1 ? bytes : std::min(bytes, bytesOf(shown)));
      continue;
    }
    auto fusion = dyn_cast_or_null<FusionOp>(op);
    if (!fusion) {
      values[root].leaves = true;
      continue;
    }
    SmallVector<Reader> &readers = values[root].fusions;
    int64_t read = std::min(bytes, bytesRead(fusion, use.getOperandNumber()));
    auto same = llvm::find_if(readers, [&](const Reader &reader) { return reader.op == number[op]; });
    if (same != readers.end())
      same->bytes = std::min(bytesOf(root), same->bytes + read);
    else
      readers.push_back({number[op], read});
  }
}

/// Readers of `value` cannot share a kernel with its producer.
bool Bounds::isCutBehind(Value value, const BlockMemory *block) {
  Operation *op = value.getDefiningOp();
  auto fusion = dyn_cast_or_null<FusionOp>(op);
  if (!fusion)
    return op && op->getNumOperands() != 0;
  llvm::DenseMap<Value, bool> known;
  unsigned result = cast<OpResult>(value).getResultNumber();
  return block && dependsOnGridSum(fusion.getBody().front().getTerminator()->getOperand(result), *block, known);
}

int64_t Bounds::solve(const BlockMemory *block) {
  // By op: the ops that can be reached from it, and the ones over a path with a cut.
  std::vector<llvm::BitVector> reached(ops.size()), apart(ops.size());
  for (unsigned i = ops.size(); i-- > 0;) {
    reached[i].resize(ops.size());
    apart[i].resize(ops.size());
    for (Value result : ops[i]->getResults()) {
      bool cut = !isFree(ops[i]) && isCutBehind(result, block);
      for (Operation *user : result.getUsers()) {
        unsigned next = number.lookup(user);
        reached[i].set(next);
        reached[i] |= reached[next];
        if (cut) {
          apart[i].set(next);
          apart[i] |= reached[next];
        } else {
          apart[i] |= apart[next];
        }
      }
    }
  }
  int64_t bytes = 0;
  for (auto &[value, users] : values) {
    auto maker = dyn_cast_or_null<FusionOp>(value.getDefiningOp());
    SmallVector<Reader> readers(users.fusions);
    llvm::sort(readers, [](const Reader &a, const Reader &b) { return a.op < b.op; });
    if (maker)
      llvm::erase_if(readers, [&](const Reader &reader) { return !apart[number.lookup(maker)].test(reader.op); });
    // The dearest chain of readers each of which is apart from the one before.
    SmallVector<int64_t> chain;
    int64_t most = 0;
    for (auto [i, reader] : llvm::enumerate(readers)) {
      int64_t before = 0;
      for (size_t k = 0; k < i; ++k)
        if (apart[readers[k].op].test(reader.op))
          before = std::max(before, chain[k]);
      chain.push_back(before + reader.bytes);
      most = std::max(most, chain.back());
    }
    bytes += most;
    if (maker && (users.leaves || !readers.empty()))
      bytes += bytesOf(value);
  }
  return bytes;
}

std::optional<Traffic> mpt::library::leastTraffic(func::FuncOp function, const BlockMemory &block) {
  if (static_cast<size_t>(std::distance(function.front().begin(), function.front().end())) > kMostOps)
    return std::nullopt;
  Bounds bounds(function);
  return Traffic{bounds.solve(nullptr), bounds.solve(&block)};
}
