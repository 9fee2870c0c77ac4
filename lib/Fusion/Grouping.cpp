// SPDX-License-Identifier: Apache-2.0
// Greedy grouping of ops into kernels.
#include "mpt/Fusion/Grouping.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Fusion/OpOrder.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t smallSpace = 4096; ///< elements that one thread reduces as part of scalar arithmetic
constexpr int64_t fewSums = 16;      ///< of scalar arithmetic on a GPU, where one block makes them one after the other
constexpr int64_t largePass = 65536; ///< elements that are worth a pass of their own on a device
constexpr int64_t longRow = 16384;   ///< elements of a row that a team of threads keeps only if it keeps nothing else
constexpr int64_t maxOps = 256;      ///< ops of a group: bounds compile time and register pressure

/// Ops whose elements follow from few elements or none.
bool isMadeAgain(Operation *op) {
  auto role = dyn_cast<FusionRole>(op);
  return isSplat(op) || (role && role.isMadeAgain());
}

/// True for ops that are better made again for each reader: no operand as large as the result, or cheap arithmetic on
/// one that is no larger in bytes.
bool isRepeatable(Operation *op) {
  if (isMadeAgain(op))
    return true;
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering || op->getNumResults() != 1 || !lowering.isCheap())
    return false;
  Value full;
  for (OpOperand &operand : op->getOpOperands()) {
    if (!lowering.readsOwnIndex(operand.getOperandNumber()))
      return false;
    Value value = operand.get();
    Operation *source = value.getDefiningOp();
    if (source && (isMadeAgain(source) || source->hasTrait<OpTrait::ConstantLike>()))
      continue;
    if (full && full != value)
      return false;
    full = value;
  }
  return full && countOf(full) > 1 && bytesOf(full) <= bytesOf(op->getResult(0));
}

/// One of many sums along the contiguous axes of a large tensor.
bool isRowSum(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  ArrayRef<int64_t> axes = reduce ? reduce.getAxes() : ArrayRef<int64_t>();
  return !axes.empty() && axes.front() == rankOf(reduce.getX()) - static_cast<int64_t>(axes.size()) &&
         countOf(reduce.getY()) >= 8 && countOf(reduce.getX()) >= largePass;
}

/// What an op reads and makes.
SmallVector<Value> valuesOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

} // namespace

bool mpt::isSplat(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  return dense && dense.isSplat();
}

bool mpt::isFusible(Operation *op) {
  return isa<LoopLowering>(op) && !isViewOp(op) && (!isa<ConstantOp>(op) || isSplat(op));
}

void Grouping::repeatCheapOps() {
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!isFusible(&op) || op.getNumResults() != 1 || !isRepeatable(&op))
      continue;
    Value result = op.getResult(0);
    bool always = isMadeAgain(&op);
    SmallVector<OpOperand *> uses;
    bool stays = false;
    for (OpOperand &use : result.getUses())
      if (isFusible(use.getOwner()))
        uses.push_back(&use);
      else
        stays = true;
    // A value that is written for a library op anyway is read, not computed again.
    if ((stays && !always) || uses.empty())
      continue;
    DenseMap<Operation *, Value> copies;
    bool first = !stays;
    for (OpOperand *use : uses) {
      Operation *owner = use->getOwner();
      if (Value known = copies.lookup(owner)) {
        use->set(known);
        continue;
      }
      if (first) {
        first = false;
        copies[owner] = result;
        continue;
      }
      OpBuilder builder(owner);
      Value copy = builder.clone(op)->getResult(0);
      copies[owner] = copy;
      use->set(copy);
    }
  }
}

void Grouping::findLate() {
  for (Operation &op : llvm::reverse(block))
    if (hasAttr<MPTDialect::RecomputedAttrHelper>(&op) ||
        (!op.use_empty() && llvm::all_of(op.getUsers(), [&](Operation *user) { return late.contains(user); })))
      late.insert(&op);
}

/// What was made again for the backward pass would be kept from the forward pass on.
bool Grouping::mixesRecomputed(ArrayRef<Operation *> ops) const {
  return llvm::any_of(ops, [](Operation *op) { return hasAttr<MPTDialect::RecomputedAttrHelper>(op); }) &&
         llvm::any_of(ops, [&](Operation *op) { return !late.contains(op); });
}

/// Cheap values of a smaller shape that only broadcasts in the group read: made again wherever they are needed.
bool Grouping::feedsBroadcasts(Operation *op, const DenseSet<Operation *> &members) {
  if (isa<ReduceOp>(op) || op->getNumResults() != 1 || !cast<LoopLowering>(op).isCheap())
    return false;
  for (OpOperand &operand : op->getOpOperands())
    if (!cast<LoopLowering>(op).readsOwnIndex(operand.getOperandNumber()) && !isa<BroadcastOp>(op))
      return false;
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    return members.contains(user) &&
           (isa<BroadcastOp>(user) || (!isa<ReduceOp>(user) && feedsBroadcasts(user, members)));
  });
}

/// Elements that sums of their rows add up, and that what follows from the sums reads, without a library call in
/// between.
void Grouping::findRowTerms() {
  DenseMap<Operation *, unsigned> calls; // on the longest way to an op
  DenseSet<Operation *> following;       // from sums of rows, as far as the next call
  for (Operation &op : block) {
    unsigned count = 0;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        count = std::max(count, calls.lookup(source));
    count += !isa<LoopLowering>(op) && !isViewOp(&op) && op.getNumOperands();
    calls[&op] = count;
    if (isFusible(&op) && llvm::any_of(op.getOperands(), [&](Value operand) {
          Operation *source = operand.getDefiningOp();
          return source && calls.lookup(source) == count && (isRowSum(source) || following.contains(source));
        }))
      following.insert(&op);
  }
  DenseSet<Operation *> added, readLater;
  for (Operation &op : llvm::reverse(block)) {
    if (!isFusible(&op) || isa<ReduceOp>(op) || op.getNumResults() != 1 || countOf(op.getResult(0)) < largePass)
      continue;
    for (Operation *user : op.getResult(0).getUsers()) {
      if (calls[user] != calls[&op] || !isFusible(user))
        continue;
      bool same = !isa<ReduceOp>(user) && shapeOf(user->getResult(0)) == shapeOf(op.getResult(0));
      if (isRowSum(user) || (same && added.contains(user)))
        added.insert(&op);
      if (same && (following.contains(user) || readLater.contains(user)))
        readLater.insert(&op);
    }
    if (added.contains(&op) && readLater.contains(&op))
      rowTerms.insert(&op);
  }
}

/// What the backward pass makes of the elements that a sum of the forward pass adds up, and of the sum itself, with no
/// library call and no other sum in between, is made with the sum, as the gradient of a loss by rows: the elements are
/// read once. Joined one by one they would not come together: each row's numbers serve the loss as well, and the kernel
/// that adds up the loss would lie between the two.
bool Grouping::joinRowGradient(ReduceOp sum) {
  ArrayRef<int64_t> space = shapeOf(sum.getX()), rows = shapeOf(sum.getY());
  // From the sum along numbers of the rows to elements of the backward pass.
  SetVector<Operation *> numbers, elements;
  numbers.insert(sum);
  for (size_t i = 0; i < numbers.size(); ++i)
    for (Operation *user : numbers[i]->getUsers()) {
      if (!isFusible(user) || isa<ReduceOp>(user) || user->getNumResults() != 1)
        continue;
      if (shapeOf(user->getResult(0)) == rows)
        numbers.insert(user);
      else if (isa<BroadcastOp>(user) && late.contains(user) && shapeOf(user->getResult(0)) == space)
        elements.insert(user);
    }
  if (elements.empty())
    return false;
  // What is made of them at the same index, and of what.
  for (size_t i = 0; i < elements.size(); ++i)
    for (Operation *user : elements[i]->getUsers())
      if (isFusible(user) && late.contains(user) && user->getNumResults() == 1 && !isa<ReduceOp>(user) &&
          shapeOf(user->getResult(0)) == space)
        elements.insert(user);
  // Further sums of them, which that kernel would take in, leave no registers for a long row: it would be read for
  // each.
  bool isLong = countOf(sum.getX()) / countOf(sum.getY()) > longRow;
  if (isLong && llvm::any_of(elements, [](Operation *op) {
        return llvm::any_of(op->getUsers(), [](Operation *user) { return isa<ReduceOp>(user); });
      }))
    return false;
  for (size_t i = 0; i < elements.size(); ++i)
    for (Value operand : elements[i]->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && isFusible(source) && late.contains(source) && !isa<ReduceOp>(source) && countOf(operand) > 1)
        elements.insert(source);
  // Numbers on the way, those next to the sum first; an element reads the last of them.
  DenseSet<Operation *> leading(elements.begin(), elements.end());
  for (Operation *number : llvm::reverse(numbers.getArrayRef()))
    if (llvm::any_of(number->getUsers(), [&](Operation *user) { return leading.contains(user); }))
      leading.insert(number);
  SetVector<Operation *> wanted;
  for (Operation *number : numbers)
    if (leading.contains(number))
      wanted.insert(number);
  for (Operation *element : elements)
    wanted.insert(element);
  // What the sums are made of, as far as it is elements or rows' numbers of the forward pass.
  for (size_t i = 0; i < wanted.size(); ++i)
    for (Value operand : wanted[i]->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && isFusible(source) && !isSplat(source) && (shapeOf(operand) == space || shapeOf(operand) == rows))
        wanted.insert(source);
  if (!joinAll(wanted.getArrayRef()))
    return false;
  for (Operation *op : wanted)
    removeAttr<MPTDialect::RecomputedAttrHelper>(op); // the forward pass is at its end: nothing is kept for long
  return true;
}

/// One kernel can compute `ops`: see fusion-form's description.
bool Grouping::isLegal(ArrayRef<Operation *> ops, const DenseSet<Operation *> &members) {
  if (static_cast<int64_t>(ops.size()) > maxOps ||
      llvm::any_of(ops, [](Operation *op) { return cast<LoopLowering>(op).standsAlone(); }))
    return false;
  bool small = true;
  ReduceOp reduce;
  int64_t numSums = 0, summed = 0;
  for (Operation *op : ops) {
    auto r = dyn_cast<ReduceOp>(op);
    for (Value result : op->getResults()) {
      small &= countOf(result) <= smallSpace;
      if (leaves(result, members))
        small &= countOf(result) == 1;
    }
    small &= !r || countOf(r.getX()) <= smallSpace;
    if (r && !reduce)
      reduce = r;
    numSums += r != nullptr;
    summed += r ? countOf(r.getX()) : 0;
  }
  if (small && (!device || numSums <= 1 || (numSums <= fewSums && summed <= 2 * smallSpace)))
    return true;
  if (small && numSums > fewSums)
    return false;
  ArrayRef<int64_t> space = reduce ? shapeOf(reduce.getX()) : shapeOf(ops.back()->getResult(0)), rows;
  bool wholeRows = false;
  int64_t spaceCount = 1;
  for (int64_t extent : space)
    spaceCount *= extent;
  if (reduce) {
    rows = shapeOf(reduce.getY());
    ArrayRef<int64_t> axes = reduce.getAxes();
    wholeRows = !axes.empty() && axes.front() == static_cast<int64_t>(space.size() - axes.size()) &&
                countOf(reduce.getY()) >= 8;
  }
  for (Operation *op : ops) {
    auto r = dyn_cast<ReduceOp>(op);
    if (r && (shapeOf(r.getX()) != space || r.getAxes() != reduce.getAxes()))
      return false;
    for (Value result : op->getResults()) {
      ArrayRef<int64_t> shape = shapeOf(result);
      if (shape != space && !(reduce && shape == rows)) {
        if (!feedsBroadcasts(op, members) || countOf(result) >= spaceCount)
          return false;
        continue;
      }
      // A pass down columns may write what it adds up, and nothing that waits for the sums. What rows add up as well is
      // made with those sums: what follows from them reads it again, and so may the columns.
      if (reduce && shape == space && !wholeRows && rowTerms.contains(op) && leaves(result, members))
        return false;
      if (reduce && shape == space && !wholeRows && leaves(result, members) && !device)
        return false;
    }
    for (OpOperand &operand : op->getOpOperands()) {
      Operation *source = operand.get().getDefiningOp();
      if (!source || !members.contains(source) || r)
        continue;
      if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
        // Back from the rows' values to their elements.
        if (shapeOf(broadcast.getX()) == shapeOf(broadcast.getY()) || feedsBroadcasts(source, members))
          continue;
        if (!wholeRows || shapeOf(broadcast.getX()) != rows || shapeOf(broadcast.getY()) != space ||
            !llvm::equal(broadcast.getDims(), axisRange(0, rows.size())))
          return false;
        continue;
      }
      if (!cast<LoopLowering>(op).readsOwnIndex(operand.getOperandNumber()))
        return false;
    }
  }
  return true;
}

/// Reorders the groups for a merge of `a` and `b`, which would make them wait for themselves if a value leaves the one
/// and comes back to the other through a third: then false, and nothing changes. Only groups ranked between the two are
/// looked at (Pearce and Kelly, "A dynamic topological sort algorithm for directed acyclic graphs", JEA 11, 2007).
bool Grouping::order(unsigned a, unsigned b) {
  unsigned low = rank[a] < rank[b] ? a : b, high = low == a ? b : a;
  DenseSet<unsigned> after; // groups in between that wait for `low`
  SmallVector<unsigned> work{low};
  while (!work.empty()) {
    unsigned group = work.pop_back_val();
    for (Operation *op : groups[group].ops)
      for (Operation *user : op->getUsers()) {
        unsigned next = groupOf.lookup(user);
        if (next == high && group != low)
          return false;
        if (next != low && rank[next] < rank[high] && after.insert(next).second)
          work.push_back(next);
      }
  }
  SmallVector<unsigned> before, behind;
  for (unsigned i = rank[low] + 1; i < rank[high]; ++i)
    (after.contains(sequence[i]) ? behind : before).push_back(sequence[i]);
  unsigned place = rank[low];
  for (unsigned group : llvm::concat<unsigned>(before, SmallVector<unsigned>{low, high}, behind)) {
    rank[group] = place;
    sequence[place++] = group;
  }
  return true;
}

/// Passes over large tensors are joined where they have one in common; over small values alone, each would keep what it
/// reads in memory until the last of them is made.
bool Grouping::shareElements(const Group &a, const Group &b) {
  auto isLarge = [](Value value) {
    return isa<RankedTensorType>(value.getType()) && countOf(value) >= largePass && !isSplat(value.getDefiningOp());
  };
  SmallPtrSet<void *, 16> touched;
  for (Operation *op : a.ops) {
    for (Value value : valuesOf(op))
      if (isLarge(value))
        touched.insert(value.getAsOpaquePointer());
  }
  if (touched.empty())
    return true;
  bool any = false;
  for (Operation *op : b.ops)
    for (Value value : valuesOf(op)) {
      if (!isLarge(value))
        continue;
      if (touched.contains(value.getAsOpaquePointer()))
        return true;
      any = true;
    }
  return !any;
}

bool Grouping::tryMerge(unsigned a, unsigned b) {
  Operation *first = groups[a].ops.front(), *second = groups[b].ops.front();
  if (a == b || updates.contains(first) != updates.contains(second) || sums.contains(first) || sums.contains(second))
    return false;
  std::pair<size_t, size_t> sizes{groups[a].ops.size(), groups[b].ops.size()};
  auto [known, isNew] = refused.try_emplace({a, b}, sizes);
  if (!isNew && known->second == sizes)
    return false;
  known->second = sizes;
  SmallVector<Operation *> ops(groups[a].ops);
  llvm::append_range(ops, groups[b].ops);
  DenseSet<Operation *> members(ops.begin(), ops.end());
  llvm::sort(ops, [&](Operation *x, Operation *y) { return position[x] < position[y]; });
  if (mixesRecomputed(ops) || (device && !shareElements(groups[a], groups[b])) || !isLegal(ops, members) ||
      !order(a, b))
    return false;
  for (Operation *op : groups[b].ops)
    groupOf[op] = a;
  groups[a].ops = std::move(ops);
  groups[b].ops.clear();
  return true;
}

void Grouping::run(bool separate) {
  if (!separate)
    repeatCheapOps();
  findLate();
  for (Operation &op : block) {
    unsigned group = groups.size();
    position[&op] = groupOf[&op] = group;
    rank.push_back(group);
    sequence.push_back(group);
    groups.push_back({{&op}});
  }
  if (separate)
    return;
  if (device) {
    findRowTerms();
    findUpdates();
    bundleSums();
    for (auto reduce : block.getOps<ReduceOp>())
      if (isRowSum(reduce) && !late.contains(reduce) && groups[groupOf[reduce]].ops.size() == 1)
        joinRowGradient(reduce);
  }
  // Producers into consumers, from the last consumer back: a chain grows from its end, where its results are due.
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : llvm::reverse(block)) {
      if (!isFusible(&op))
        continue;
      for (Value operand : op.getOperands())
        if (Operation *source = operand.getDefiningOp(); source && isFusible(source))
          changed |= tryMerge(groupOf[&op], groupOf[source]);
    }
  }
  for (Value argument : block.getArguments())
    shareReaders(argument);
  for (Operation &op : block)
    for (Value result : op.getResults())
      shareReaders(result);
  if (device)
    bundleUpdates();
}

/// One group of ops each of which is a group of its own, or nothing.
bool Grouping::joinAll(ArrayRef<Operation *> wanted) {
  SmallVector<Operation *> ops(wanted);
  llvm::sort(ops, [&](Operation *x, Operation *y) { return position[x] < position[y]; });
  DenseSet<Operation *> members(ops.begin(), ops.end());
  if (llvm::any_of(ops, [&](Operation *op) { return groups[groupOf[op]].ops.size() != 1 || updates.contains(op); }) ||
      !isLegal(ops, members))
    return false;
  // In the order of the program: what lies between two of them and is not one of them keeps them apart for good.
  SmallVector<unsigned> ranksBefore(rank), sequenceBefore(sequence);
  unsigned into = groupOf[ops.front()];
  for (Operation *op : ArrayRef(ops).drop_front()) {
    unsigned own = position[op];
    if (order(into, own)) {
      groupOf[op] = into;
      groups[into].ops.push_back(op);
      groups[own].ops.clear();
      continue;
    }
    for (Operation *joined : ops) {
      groupOf[joined] = position[joined];
      groups[position[joined]].ops.assign(1, joined);
    }
    rank = std::move(ranksBefore);
    sequence = std::move(sequenceBefore);
    return false;
  }
  return true;
}

/// Readers of one value that walk it alike share the pass over it.
void Grouping::shareReaders(Value value) {
  SmallVector<Operation *> firsts;
  for (Operation *user : value.getUsers()) {
    if (!isFusible(user) || updates.contains(user) || sums.contains(user))
      continue;
    bool merged = false;
    for (Operation *first : firsts)
      merged = merged || groupOf[first] == groupOf[user] || tryMerge(groupOf[first], groupOf[user]);
    if (!merged && firsts.size() < (device ? 8 : 1))
      firsts.push_back(user);
  }
}

void Grouping::outline(llvm::function_ref<void(FusionOp)> report) {
  SmallVector<Operation *> recomputed;
  for (Group &group : groups) {
    if (group.ops.empty() || !isFusible(group.ops.front()) || (group.ops.size() == 1 && isSplat(group.ops.front())))
      continue;
    DenseSet<Operation *> members(group.ops.begin(), group.ops.end());
    SetVector<Value> inputs, outputs;
    for (Operation *op : group.ops) {
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp(); !source || !members.contains(source))
          if (!isSplat(source))
            inputs.insert(operand);
      for (Value result : op->getResults())
        if (leaves(result, members))
          outputs.insert(result);
    }
    if (outputs.empty())
      continue;
    OpBuilder builder(group.ops.back());
    Location loc = group.ops.back()->getLoc();
    SmallVector<Type> types;
    for (Value output : outputs)
      types.push_back(output.getType());
    auto fusion = FusionOp::create(builder, loc, types, inputs.getArrayRef());
    Block &body = fusion.getBody().emplaceBlock();
    IRMapping mapping;
    for (Value input : inputs)
      mapping.map(input, body.addArgument(input.getType(), input.getLoc()));
    builder.setInsertionPointToEnd(&body);
    for (Operation *op : group.ops) {
      for (Value operand : op->getOperands())
        if (isSplat(operand.getDefiningOp()) && !mapping.contains(operand))
          mapping.map(operand, builder.clone(*operand.getDefiningOp())->getResult(0));
      removeAttr<MPTDialect::RecomputedAttrHelper>(builder.clone(*op, mapping));
    }
    SmallVector<Value> values;
    for (Value output : outputs)
      values.push_back(mapping.lookup(output));
    YieldOp::create(builder, loc, values);
    for (unsigned i = 0; i < outputs.size(); ++i)
      Value(outputs[i]).replaceUsesWithIf(fusion.getOutputs()[i], [&](OpOperand &use) {
        return !members.contains(use.getOwner());
      });
    if (llvm::any_of(group.ops, [](Operation *op) { return hasAttr<MPTDialect::RecomputedAttrHelper>(op); }))
      recomputed.push_back(fusion);
    report(fusion);
  }
  for (Group &group : groups)
    for (Operation *op : llvm::reverse(group.ops))
      if (isFusible(op) && op->use_empty())
        op->erase();
  orderByReadiness(block);
  sink(recomputed);
}

/// What is made again for the backward pass is ready long before: it is made when it is wanted.
void Grouping::sink(MutableArrayRef<Operation *> fusions) {
  llvm::sort(fusions, [](Operation *a, Operation *b) { return b->isBeforeInBlock(a); });
  for (Operation *fusion : fusions) {
    Operation *first = nullptr;
    for (Operation *user : fusion->getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    if (first)
      fusion->moveBefore(first);
  }
}
