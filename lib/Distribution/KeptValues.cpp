// SPDX-License-Identifier: Apache-2.0
// Which values cross from one part of a step to a later one: by bytes, each after its readers.
#include "mpt/Distribution/KeptValues.h"

#include "mpt/Dialect/MPT/Draws.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Interfaces/Interfaces.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include <queue>

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;

namespace {

constexpr int deepest = 8; ///< ops behind a value that are looked at: longer chains are cut anyway

/// A few instructions an element.
bool isCheap(Operation *op) {
  auto semantics = dyn_cast<PrecisionSemantics>(op);
  return !keyOf(op) &&
         (op->hasTrait<OpTrait::Elementwise>() || (semantics && semantics.getNumericClass() == NumericClass::Movement));
}

class Search {
public:
  explicit Search(func::FuncOp step) : meetings(step), variance(step), ops(opsOf(step)) {
    for (auto [i, op] : llvm::enumerate(ops))
      places[op] = i;
  }

  /// Later parts come first: the values that they keep are there for earlier ones, and have to be made by one.
  SmallVector<KeptValue> run(int64_t last) {
    for (int64_t part = last; part > 0; --part)
      visit(part, part == last);
    SmallVector<KeptValue> found;
    for (auto &[value, taken] : kept)
      found.push_back({places.lookup(value.getDefiningOp()), cast<OpResult>(value).getResultNumber(),
                       meetings.before(value), std::move(taken)});
    return found;
  }

private:
  /// Whether only the replica itself can know it.
  bool isOwn(Value value) const { return variance.varies(value) && !variance.isShard(value); }

  void visit(int64_t part, bool isLast) {
    queue = {};
    waiting.clear();
    for (Operation *op : ops) {
      auto write = dyn_cast<train::WriteOp>(op);
      const bool contributes = isCollective(op) && meetings.before(op) == part;
      if (contributes || (isLast && write && shardOf(write, write.getStateAttr())))
        needOperands(op);
    }
    for (auto &[value, taken] : kept)
      if (meetings.before(value) == part)
        needOperands(value.getDefiningOp());
    while (!queue.empty()) {
      Value value = ops[queue.top().first]->getResult(queue.top().second);
      queue.pop();
      if (isOwn(value) && meetings.before(value) < part && shouldKeep(value))
        kept[value].push_back(part);
      else
        needOperands(value.getDefiningOp());
    }
  }

  void needOperands(Operation *op) {
    for (Value operand : op->getOperands()) {
      Operation *made = operand.getDefiningOp();
      if (made && !isCollective(made) && waiting.insert(operand).second)
        queue.push({places.lookup(made), cast<OpResult>(operand).getResultNumber()});
    }
  }

  bool shouldKeep(Value value) const {
    return kept.contains(value) || costAgain(value, 0) > bytesOf(value) || !isCheap(value.getDefiningOp());
  }

  /// Bytes that would have to be kept to compute `value` again.
  int64_t costAgain(Value value, int depth) const {
    int64_t bytes = 0;
    for (Value operand : value.getDefiningOp()->getOperands())
      bytes += costOf(operand, depth + 1);
    return bytes;
  }
  int64_t costOf(Value value, int depth) const {
    if (!isOwn(value) || !value.getDefiningOp() || kept.contains(value))
      return 0;
    const int64_t bytes = bytesOf(value);
    return depth < deepest && isCheap(value.getDefiningOp()) ? std::min(bytes, costAgain(value, depth)) : bytes;
  }

  const Meetings meetings;
  const Variance variance;
  const SmallVector<Operation *> ops;
  DenseMap<Operation *, unsigned> places;
  llvm::MapVector<Value, SmallVector<int64_t>> kept;
  std::priority_queue<std::pair<unsigned, unsigned>> queue; ///< readers before their operands
  llvm::DenseSet<Value> waiting;
};

} // namespace

Value KeptValue::in(ArrayRef<Operation *> ops) const { return ops[op]->getResult(result); }

SmallVector<Operation *> dist::opsOf(func::FuncOp step) {
  return llvm::to_vector(llvm::make_pointer_range(step.getBody().front()));
}

SmallVector<KeptValue> dist::keptValues(func::FuncOp step, int64_t last) { return Search(step).run(last); }
