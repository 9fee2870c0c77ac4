// SPDX-License-Identifier: Apache-2.0
// Arithmetic on either side of a sum, where both sides read its operands anyway.
#include "mpt/Fusion/SharedReads.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Support/Refusal.h"

#include "llvm/ADT/EquivalenceClasses.h"
#include "llvm/ADT/MapVector.h"

#define DEBUG_TYPE "fusion-share-reads"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t smallTensor = 8192; ///< values below this cost nothing to speak of
constexpr unsigned mostOps = 24;      ///< of a value that is rematerialized
constexpr size_t mostLeaves = 4;

bool isLarge(Value value) { return isa<RankedTensorType>(value.getType()) && countOf(value) >= smallTensor; }

/// Whether `op` computes each element from elements at the same index, and from small values that repeat.
bool isArithmetic(Operation *op) {
  auto lowering = dyn_cast_or_null<LoopLowering>(op);
  if (!lowering || isViewOp(op) || isReduction(op) || op->getNumResults() != 1 || lowering.standsAlone() ||
      !isLarge(op->getResult(0)))
    return false;
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return !isLarge(broadcast.getX());
  if (isRematerializedByReaders(op))
    return true;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    return lowering.readsOwnIndex(operand.getOperandNumber()) && lowering.isCheap() &&
           tensorType(operand.get()).getShape() == tensorType(op->getResult(0)).getShape();
  });
}

/// Whether `op` is a sum that is not along rows, which fusion-form puts elements of the same kernel behind.
bool endsKernel(ReduceOp op) {
  RankedTensorType x = tensorType(op.getX());
  ArrayRef<int64_t> axes = op.getAxes();
  bool rows =
      !axes.empty() && axes.front() == x.getRank() - static_cast<int64_t>(axes.size()) && countOf(op.getY()) >= 8;
  return isLarge(op.getX()) && !rows;
}

using Leaves = llvm::SmallSetVector<Value, 4>;

/// How far an op is from the start: library calls on the way, then sums since the last of them. Ops of one stage that
/// are connected are taken for one kernel.
using Stage = std::pair<unsigned, unsigned>;

class Sharing {
public:
  explicit Sharing(func::FuncOp function) : function(function) { findStages(); }
  unsigned run();

private:
  void findStages();
  bool isInMemory(Value value);
  /// Adds the large values in memory that `value` is made from; false where they, or the ops on the way, are too many.
  bool collectLeaves(Value value, Leaves &leaves, unsigned &ops);
  bool collectLeaves(ValueRange values, Leaves &leaves) {
    unsigned ops = 0;
    return llvm::all_of(values, [&](Value value) { return collectLeaves(value, leaves, ops); });
  }
  Value rematerialize(Value value, OpBuilder &builder, llvm::DenseMap<Value, Value> &made);
  unsigned rereadInsteadOfMask(ArrayRef<Operation *> kernel);
  unsigned rematerializeAfterSums(ArrayRef<Operation *> kernel);
  std::vector<SmallVector<Operation *>> kernels();
  Value whatIsStored(Value value);
  Stage stageOf(Value value) const {
    Operation *op = value.getDefiningOp();
    return op ? stages.lookup(op) : Stage();
  }

  func::FuncOp function;
  llvm::DenseMap<Operation *, Stage> stages;
};

} // namespace

void Sharing::findStages() {
  for (Operation &op : function.front()) {
    Stage stage{};
    for (Value operand : op.getOperands())
      stage = std::max(stage, stageOf(operand));
    auto reduce = dyn_cast<ReduceOp>(op);
    if (reduce && endsKernel(reduce))
      ++stage.second;
    else if (isLibraryCall(&op))
      stage = {stage.first + 1, 0};
    stages[&op] = stage;
  }
}

/// Given, made by something else than arithmetic, or wanted by something else.
bool Sharing::isInMemory(Value value) {
  Operation *op = value.getDefiningOp();
  return !isArithmetic(op) || (!isBroadcast(op) && !isConstant(op) && llvm::any_of(op->getUsers(), [](Operation *user) {
    return !isa<LoopLowering>(user) || isViewOp(user);
  }));
}

bool Sharing::collectLeaves(Value value, Leaves &leaves, unsigned &ops) {
  if (!isLarge(value))
    return true;
  if (isInMemory(value)) {
    leaves.insert(value);
    return leaves.size() <= mostLeaves;
  }
  return ++ops <= mostOps && llvm::all_of(value.getDefiningOp()->getOperands(),
                                          [&](Value operand) { return collectLeaves(operand, leaves, ops); });
}

Value Sharing::rematerialize(Value value, OpBuilder &builder, llvm::DenseMap<Value, Value> &made) {
  if (!isLarge(value) || isInMemory(value))
    return value;
  if (Value known = made.lookup(value))
    return known;
  SmallVector<Value> operands;
  for (Value operand : value.getDefiningOp()->getOperands())
    operands.push_back(rematerialize(operand, builder, made));
  Operation *copy = builder.clone(*value.getDefiningOp());
  copy->setOperands(operands);
  stages[copy] = stages.lookup(value.getDefiningOp());
  return made[value] = copy->getResult(0);
}

/// A call, a view or the outside makes or reads the value.
static bool isElsewhere(Value value) {
  auto isCall = [](Operation *op) { return !op || !isa<LoopLowering>(op) || isViewOp(op); };
  return isCall(value.getDefiningOp()) || llvm::any_of(value.getUsers(), isCall);
}

/// Arithmetic and the sums that end it, one group for the ops connected within a stage.
std::vector<SmallVector<Operation *>> Sharing::kernels() {
  llvm::EquivalenceClasses<Operation *> classes;
  for (Operation &op : function.front()) {
    bool member = isArithmetic(&op) || (isReduction(&op) && isLarge(op.getOperand(0)));
    if (!member)
      continue;
    classes.insert(&op);
    for (Value operand : op.getOperands()) {
      Operation *source = operand.getDefiningOp();
      // A sum is one stage further on than its kernel.
      if (source && isArithmetic(source) && !isBroadcast(source) && !isConstant(source) &&
          (isReduction(&op) || stages.lookup(source) == stages.lookup(&op)))
        classes.unionSets(source, &op);
    }
  }
  llvm::MapVector<Operation *, SmallVector<Operation *>> byLeader;
  for (Operation &op : function.front())
    if (auto leader = classes.findLeader(&op); leader != classes.member_end())
      byLeader[*leader].push_back(&op);
  std::vector<SmallVector<Operation *>> result;
  for (auto &[leader, ops] : byLeader)
    result.push_back(ops);
  return result;
}

/// A value in memory that the kernel can compute from its other operands is not read.
unsigned Sharing::rereadInsteadOfMask(ArrayRef<Operation *> kernel) {
  llvm::MapVector<Value, SmallVector<OpOperand *>> stored;
  llvm::SmallPtrSet<Operation *, 32> members(kernel.begin(), kernel.end());
  for (Operation *op : kernel)
    for (OpOperand &operand : op->getOpOperands())
      if (Operation *source = operand.get().getDefiningOp(); source && !members.contains(source) &&
                                                             isArithmetic(source) && isInMemory(operand.get()) &&
                                                             stages.lookup(source) < stages.lookup(op))
        stored[operand.get()].push_back(&operand);
  unsigned made = 0;
  for (auto &[value, uses] : stored) {
    Leaves needed, read;
    if (!collectLeaves(value.getDefiningOp()->getOperands(), needed) || needed.empty()) {
      (void)(refuse(DEBUG_TYPE, value.getLoc())
             << "not rematerialized: expected 1 to " << mostLeaves << " large tensors that it follows from");
      continue;
    }
    for (Operation *op : kernel)
      for (Value operand : op->getOperands()) {
        Leaves some;
        if (operand != value && (!operand.getDefiningOp() || !members.contains(operand.getDefiningOp())) &&
            collectLeaves(operand, some))
          read.insert(some.begin(), some.end());
      }
    if (!llvm::all_of(needed, [&](Value leaf) { return read.contains(leaf); })) {
      (void)(refuse(DEBUG_TYPE, value.getLoc())
             << "not rematerialized: expected a reader that reads what it follows from as well");
      continue;
    }
    OpBuilder builder(uses.front()->getOwner());
    llvm::DenseMap<Value, Value> copies;
    SmallVector<Value> operands;
    for (Value operand : value.getDefiningOp()->getOperands())
      operands.push_back(rematerialize(operand, builder, copies));
    Operation *copy = builder.clone(*value.getDefiningOp());
    copy->setOperands(operands);
    stages[copy] = stages.lookup(value.getDefiningOp());
    for (OpOperand *use : uses)
      use->set(copy->getResult(0));
    ++made;
  }
  return made;
}

/// The value that fusion would write for another kernel to read `value`: the one before conversions and the like.
Value Sharing::whatIsStored(Value value) {
  while (!isInMemory(value)) {
    Value only;
    unsigned count = 0;
    for (Value operand : value.getDefiningOp()->getOperands()) {
      Leaves leaves;
      if (isLarge(operand) && (!collectLeaves(operand, leaves) || !leaves.empty())) {
        count += operand != only;
        only = operand;
      }
    }
    if (count != 1)
      break;
    value = only;
  }
  return value;
}

/// Values that a kernel behind a sum takes from before it are rematerialized where that reads fewer bytes than writing
/// and reading them.
unsigned Sharing::rematerializeAfterSums(ArrayRef<Operation *> kernel) {
  llvm::SmallPtrSet<Operation *, 32> members(kernel.begin(), kernel.end());
  llvm::MapVector<Value, SmallVector<OpOperand *>> before;
  Stage stage{};
  for (Operation *op : kernel)
    if (!isReduction(op))
      stage = std::max(stage, stages.lookup(op));
  if (stage.second == 0)
    return 0;
  for (Operation *op : kernel)
    for (OpOperand &operand : op->getOpOperands())
      if (Operation *source = operand.get().getDefiningOp(); isLarge(operand.get()) &&
                                                             !(source && members.contains(source)) &&
                                                             !isBroadcast(source) && !isConstant(source))
        before[operand.get()].push_back(&operand);
  Leaves leaves, stored;
  int64_t again = 0, kept = 0;
  for (auto &[value, uses] : before) {
    if (!collectLeaves(value, leaves))
      return 0;
    stored.insert(whatIsStored(value));
  }
  // Values that no call makes or wants may be inside a kernel so far.
  for (Value leaf : leaves)
    again += bytesOf(leaf) * (isElsewhere(leaf) ? 1 : 2);
  for (Value value : stored) {
    // Written for others as well: readers that come later still.
    bool others = isInMemory(value) || llvm::any_of(value.getUsers(), [&](Operation *user) {
                    return !members.contains(user) && stages.lookup(user).first > stage.first;
                  });
    kept += bytesOf(value) * (others ? 1 : 2);
  }
  if (again >= kept) {
    (void)(refuse(DEBUG_TYPE, kernel.front())
           << "not rematerialized behind the sums: expected fewer than " << kept << " bytes read, got " << again);
    return 0;
  }
  OpBuilder builder(function.getContext());
  Operation *first = nullptr;
  for (auto &[value, uses] : before)
    for (OpOperand *use : uses)
      if (!first || use->getOwner()->isBeforeInBlock(first))
        first = use->getOwner();
  builder.setInsertionPoint(first);
  llvm::DenseMap<Value, Value> copies;
  for (auto &[value, uses] : before) {
    Value copy = rematerialize(value, builder, copies);
    for (OpOperand *use : uses)
      use->set(copy);
  }
  return static_cast<unsigned>(copies.size());
}

unsigned Sharing::run() {
  // Updates of state are bundled by fusion-form, and wait for sums over all gradients.
  auto isUpdate = [](ArrayRef<Operation *> kernel) {
    return llvm::any_of(kernel, [](Operation *op) {
      return llvm::any_of(op->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    });
  };
  unsigned made = 0;
  for (auto &kernel : kernels())
    if (!isUpdate(kernel))
      made += rereadInsteadOfMask(kernel);
  if (made)
    findStages();
  for (auto &kernel : kernels())
    if (!isUpdate(kernel))
      made += rematerializeAfterSums(kernel);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.front())))
    if (isOpTriviallyDead(&op))
      op.erase();
  return made;
}

unsigned mpt::shareReads(func::FuncOp function) { return Sharing(function).run(); }
