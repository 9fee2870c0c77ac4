// --fusion-form: greedy grouping of ops into kernels.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Lowering/Backward.h"
#include "mpt/Lowering/OpOrder.h"
#include "passes/fusion/Passes.h"
#include "passes/fusion/Sizes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace mpt {
#define GEN_PASS_DEF_FORM
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t smallSpace = 4096; ///< elements that one thread reduces as part of scalar arithmetic
constexpr int64_t fewSums = 16;      ///< of scalar arithmetic on a GPU, where one block makes them one after the other
constexpr int64_t fewElements = 4;   ///< numbers and keys that all elements read
constexpr size_t maxBundle = 200;    ///< operands and results of a bundle: more pointers than these spill
constexpr int64_t largePass = 65536; ///< elements that are worth a pass of their own on a device
constexpr int64_t maxOps = 256;      ///< ops of a group: bounds compile time and register pressure

bool isSplat(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  return dense && dense.isSplat();
}
/// Ops whose elements follow from few elements or none.
bool isMadeAgain(Operation *op) {
  auto role = dyn_cast<FusionRole>(op);
  return isSplat(op) || (role && role.isMadeAgain());
}
bool isFusible(Operation *op) {
  return isa<LoopLowering>(op) && !isViewOp(op) && (!isa<ConstantOp>(op) || isSplat(op));
}
ArrayRef<int64_t> shapeOf(Value value) { return tensorType(value).getShape(); }

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

/// What an op reads and makes.
SmallVector<Value> valuesOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

class Grouping {
public:
  Grouping(func::FuncOp function, bool device)
      : block(function.getBody().front()), device(device), late(backwardOps(function)) {}

  /// `separate`: every op stays a group of its own.
  void run(bool separate);
  template <typename F> void outline(F report);

private:
  void sink(MutableArrayRef<Operation *> fusions);
  struct Group {
    SmallVector<Operation *> ops; ///< in block order
  };
  void repeatCheapOps();
  void findLate();
  void findRowTerms();
  void findUpdates();
  void shareReaders(Value value);
  std::string signatureOf(const Group &group, SetVector<Value> &operands);
  void bundleUpdates();
  bool isPlain(Operation *op, ArrayRef<int64_t> shape);
  void bundleSums();
  bool mixesRecomputed(ArrayRef<Operation *> ops) const;
  bool tryMerge(unsigned a, unsigned b);
  bool shareElements(const Group &a, const Group &b);
  bool feedsBroadcasts(Operation *op, const DenseSet<Operation *> &members);
  bool isLegal(ArrayRef<Operation *> ops, const DenseSet<Operation *> &members);
  bool order(unsigned a, unsigned b);
  bool leaves(Value value, const DenseSet<Operation *> &members) {
    return llvm::any_of(value.getUsers(), [&](Operation *user) { return !members.contains(user); });
  }

  Block &block;
  const bool device;
  DenseSet<Operation *> updates;  ///< arithmetic on elements that state alone takes
  DenseSet<Operation *> sums;     ///< of all elements of gradients, with what they add up: in bundles
  DenseSet<Operation *> rowTerms; ///< on a device: arithmetic on elements that sums of rows add up
  DenseSet<Operation *> late;     ///< ops of the backward pass, and all that only they read
  DenseMap<Operation *, unsigned> groupOf, position;
  SmallVector<Group> groups; ///< one for each op at first, fusible or not; merging empties one
  /// A topological order of the groups, kept by every merge: rank[g] is g's place in sequence.
  SmallVector<unsigned> rank, sequence;
  /// Sizes with which a pair of groups was refused: until one grows, it is refused again.
  DenseMap<std::pair<unsigned, unsigned>, std::pair<size_t, size_t>> refused;
};

} // namespace

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
    if (op.hasAttr(kRecomputedAttr) ||
        (!op.use_empty() && llvm::all_of(op.getUsers(), [&](Operation *user) { return late.contains(user); })))
      late.insert(&op);
}

/// What was made again for the backward pass would be kept from the forward pass on.
bool Grouping::mixesRecomputed(ArrayRef<Operation *> ops) const {
  return llvm::any_of(ops, [](Operation *op) { return op->hasAttr(kRecomputedAttr); }) &&
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
  auto isRowSum = [](Operation *op) {
    auto reduce = dyn_cast<ReduceOp>(op);
    ArrayRef<int64_t> axes = reduce ? reduce.getAxes() : ArrayRef<int64_t>();
    return !axes.empty() && axes.front() == tensorType(reduce.getX()).getRank() - static_cast<int64_t>(axes.size()) &&
           countOf(reduce.getY()) >= 8 && countOf(reduce.getX()) >= largePass;
  };
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

//===----------------------------------------------------------------------===//
// Updates
//===----------------------------------------------------------------------===//

/// Arithmetic on the elements of one shape.
bool Grouping::isPlain(Operation *op, ArrayRef<int64_t> shape) {
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering || !isFusible(op) || isSplat(op) || isa<ReduceOp>(op) || lowering.standsAlone() ||
      op->getNumResults() != 1 || countOf(op->getResult(0)) <= fewElements || shapeOf(op->getResult(0)) != shape)
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    // Keys of random streams and broadcast numbers are read by every element.
    return lowering.readsOwnIndex(operand.getOperandNumber()) ? shapeOf(operand.get()) == shape
                                                              : countOf(operand.get()) <= fewElements;
  });
}

/// Arithmetic whose results only state takes; the same ops serve for parameters of all shapes.
void Grouping::findUpdates() {
  for (Operation &op : llvm::reverse(block))
    if (op.getNumResults() == 1 && !op.use_empty() && isa<RankedTensorType>(op.getResult(0).getType()) &&
        isPlain(&op, shapeOf(op.getResult(0))) && llvm::all_of(op.getUsers(), [&](Operation *user) {
          return isa<train::WriteOp>(user) || updates.contains(user);
        }))
      updates.insert(&op);
}

/// Norms and finite checks of what updates read: one pass over a gradient for all of its own, one kernel for all
/// gradients.
void Grouping::bundleSums() {
  llvm::MapVector<Value, SmallVector<Operation *>> byGradient;
  for (auto reduce : block.getOps<ReduceOp>()) {
    if (countOf(reduce.getY()) != 1 || countOf(reduce.getX()) <= fewElements || reduce.getKind() == ReduceKind::mean)
      continue;
    ArrayRef<int64_t> shape = shapeOf(reduce.getX());
    SetVector<Operation *> region;
    region.insert(reduce);
    SetVector<Value> full;
    for (size_t i = 0; i < region.size(); ++i)
      for (Value operand : region[i]->getOperands()) {
        Operation *source = operand.getDefiningOp();
        if (source && isPlain(source, shape) &&
            llvm::all_of(source->getUsers(), [&](Operation *user) { return region.contains(user); }))
          region.insert(source);
        else if (countOf(operand) > fewElements && !isSplat(source))
          full.insert(operand);
      }
    if (full.size() == 1 && shapeOf(full[0]) == shape &&
        llvm::any_of(full[0].getUsers(), [&](Operation *user) { return updates.contains(user); }))
      llvm::append_range(byGradient[full[0]], region);
  }
  std::map<std::string, SmallVector<SmallVector<Operation *>>> kinds;
  for (auto &[gradient, ops] : byGradient) {
    llvm::sort(ops, [&](Operation *x, Operation *y) { return position[x] < position[y]; });
    Group group;
    group.ops = ops;
    SetVector<Value> operands;
    if (std::string signature = signatureOf(group, operands); !signature.empty())
      kinds[signature].push_back(ops);
  }
  for (auto &[signature, members] : kinds) {
    if (members.size() < 3)
      continue;
    Operation *first = nullptr;
    size_t pointers = 0;
    for (ArrayRef<Operation *> ops : members) {
      // At most all of its operands anew, and a result each.
      size_t more = ops.size() + 2;
      if (!first || pointers + more > maxBundle) {
        first = ops.front();
        pointers = 0;
      }
      pointers += more;
      // First one group for the member, then that into the bundle: either would wait for itself where a sum scales what
      // another adds up.
      unsigned own = groupOf[ops.front()], into = groupOf[first];
      SmallVector<std::pair<Operation *, unsigned>> joined;
      auto join = [&](Operation *op, unsigned group) {
        joined.emplace_back(op, groupOf[op]);
        groups[groupOf[op]].ops.clear();
        groups[group].ops.push_back(op);
        groupOf[op] = group;
      };
      bool whole = llvm::all_of(ops.drop_front(), [&](Operation *op) {
        if (!order(own, groupOf[op]))
          return false;
        join(op, own);
        return true;
      });
      if (!whole || (own != into && !order(into, own))) {
        groups[own].ops.assign(1, ops.front());
        for (auto [op, group] : joined) {
          groups[group].ops.assign(1, op);
          groupOf[op] = group;
        }
        if (own == into)
          first = nullptr;
        continue;
      }
      if (own != into)
        for (Operation *op : ops)
          join(op, into);
      sums.insert(ops.begin(), ops.end());
    }
  }
}

/// Equal for groups that differ in shape alone; empty for a group that has results of several shapes.
std::string Grouping::signatureOf(const Group &group, SetVector<Value> &operands) {
  std::string text;
  llvm::raw_string_ostream out(text);
  DenseMap<Value, unsigned> inside;
  auto spaceOf = [](Operation *op) {
    auto reduce = dyn_cast<ReduceOp>(op);
    return shapeOf(reduce ? Value(reduce.getX()) : Value(op->getResult(0)));
  };
  ArrayRef<int64_t> shape = spaceOf(group.ops.front());
  for (Operation *op : group.ops) {
    if (spaceOf(op) != shape)
      return "";
    out << op->getName() << ' ';
    if (auto reduce = dyn_cast<ReduceOp>(op))
      out << static_cast<unsigned>(reduce.getKind()) << ' ' << reduce.getNumericsAttr().getAsOpaquePointer() << ' ';
    else
      out << op->getPropertiesAsAttribute().getAsOpaquePointer() << ' ';
    for (Value operand : op->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (auto known = inside.find(operand); known != inside.end()) {
        out << '%' << known->second;
      } else if (isSplat(source)) {
        auto splat = cast<SplatElementsAttr>(cast<ConstantOp>(source).getValue());
        out << splat.getSplatValue<Attribute>().getAsOpaquePointer();
      } else {
        operands.insert(operand);
        out << '#' << llvm::find(operands, operand) - operands.begin() << ':'
            << tensorType(operand).getElementType().getAsOpaquePointer() << (shapeOf(operand) == shape);
        if (shapeOf(operand) != shape)
          out << tensorType(operand).getAsOpaquePointer();
      }
      out << ',';
    }
    Value result = op->getResult(0);
    bool written = llvm::any_of(result.getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    out << "->" << tensorType(result).getElementType().getAsOpaquePointer() << written << ';';
    inside.try_emplace(result, inside.size());
  }
  return text;
}

/// One kernel for all parameters that are updated alike.
void Grouping::bundleUpdates() {
  struct Bundle {
    unsigned group;
    SetVector<Value> operands;
    size_t results = 0;
  };
  std::map<std::string, Bundle> open;
  for (unsigned i : sequence) {
    if (groups[i].ops.empty() || !updates.contains(groups[i].ops.front()))
      continue;
    SetVector<Value> operands;
    std::string signature = signatureOf(groups[i], operands);
    if (signature.empty())
      continue;
    size_t results = llvm::count_if(groups[i].ops, [](Operation *op) {
      return llvm::any_of(op->getUsers(), [](Operation *user) { return isa<train::WriteOp>(user); });
    });
    auto [slot, isNew] = open.try_emplace(signature, Bundle{i, operands, results});
    if (isNew)
      continue;
    Bundle &bundle = slot->second;
    SetVector<Value> both = bundle.operands;
    both.insert(operands.begin(), operands.end());
    if (both.size() + bundle.results + results > maxBundle) {
      bundle = {i, operands, results};
      continue;
    }
    bundle.operands = std::move(both);
    bundle.results += results;
    llvm::append_range(groups[bundle.group].ops, groups[i].ops);
    groups[i].ops.clear();
  }
}

template <typename F> void Grouping::outline(F report) {
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
      builder.clone(*op, mapping)->removeAttr(kRecomputedAttr);
    }
    SmallVector<Value> values;
    for (Value output : outputs)
      values.push_back(mapping.lookup(output));
    YieldOp::create(builder, loc, values);
    for (unsigned i = 0; i < outputs.size(); ++i)
      Value(outputs[i]).replaceUsesWithIf(fusion.getOutputs()[i], [&](OpOperand &use) {
        return !members.contains(use.getOwner());
      });
    if (llvm::any_of(group.ops, [](Operation *op) { return op->hasAttr(kRecomputedAttr); }))
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

namespace {

struct Form : mpt::impl::FormBase<Form> {
  using FormBase::FormBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      Grouping grouping(function, device);
      grouping.run(separate);
      grouping.outline([&](FusionOp fusion) {
        ++numKernels;
        for (Value input : fusion.getInputs())
          bytesRead += bytesOf(input);
        for (Value output : fusion.getOutputs())
          bytesWritten += bytesOf(output);
      });
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
