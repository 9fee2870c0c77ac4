// SPDX-License-Identifier: Apache-2.0
// Greedy grouping of ops into kernels: producers into consumers, then readers of one value.
#include "mpt/Fusion/Grouping.h"

#include "Bundles.h"
#include "CheapOps.h"
#include "GroupGraph.h"
#include "KernelRules.h"
#include "OpKinds.h"
#include "RowGradients.h"
#include "UpdateWaits.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Fusion/Backward.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mpt/Support/Refusal.h"

#define DEBUG_TYPE "fusion-form"

using namespace mlir;
using namespace mpt;

namespace {

using OpSet = KernelRules::OpSet;

/// The groups of one block while they grow.
class Grouper {
public:
  Grouper(Block &block, const KernelCapabilities &kernels, OpSet backward)
      : block(block), kernels(kernels), late(std::move(backward)), rules(kernels), graph(block), bundles(block, graph),
        waits(block) {
    addLateOps(block, late);
  }

  void run();
  SmallVector<Group> groups() const;

private:
  void joinRowGradients();
  void mergeProducers();
  void mergeReaders(Value value);
  bool mixesRematerialized(ArrayRef<Operation *> ops) const;
  bool mixesStored(ArrayRef<Operation *> ops) const;
  bool shareElements(unsigned a, unsigned b) const;
  bool tryMerge(unsigned a, unsigned b);
  bool keepApart(unsigned a, unsigned b, StringRef reason) const;

  Block &block;
  const KernelCapabilities kernels;
  OpSet late; ///< ops of the backward pass, and all that only they read
  KernelRules rules;
  GroupGraph graph;
  Bundles bundles;
  UpdateWaits waits;
  /// Sizes with which a pair of groups was refused: until one grows, it is refused again.
  DenseMap<std::pair<unsigned, unsigned>, std::pair<size_t, size_t>> refused;
};

/// The operands and results of an op.
SmallVector<Value> valuesOf(Operation *op) {
  SmallVector<Value> values(op->getOperands());
  llvm::append_range(values, op->getResults());
  return values;
}

bool isLarge(Value value) {
  return isa<RankedTensorType>(value.getType()) && countOf(value) >= largePass && !isSplat(value.getDefiningOp());
}

} // namespace

//===----------------------------------------------------------------------===//
// Refusals
//===----------------------------------------------------------------------===//

/// False, after saying why one kernel does not compute both groups.
bool Grouper::keepApart(unsigned a, unsigned b, StringRef reason) const {
  return refuse(DEBUG_TYPE, graph.ops(a).front())
         << "not one kernel with " << graph.ops(b).front()->getLoc() << ": " << reason;
}

/// Whether one kernel would keep from the forward pass on values that are rematerialized for the backward pass.
bool Grouper::mixesRematerialized(ArrayRef<Operation *> ops) const {
  return llvm::any_of(ops, [](Operation *op) { return hasAttr<MPTDialect::RecomputedAttrHelper>(op); }) &&
         llvm::any_of(ops, [&](Operation *op) { return !late.contains(op); });
}

/// Whether one kernel would keep from the forward pass on values that are stored in fewer bytes for the backward pass.
bool Grouper::mixesStored(ArrayRef<Operation *> ops) const {
  return llvm::any_of(ops, [&](Operation *op) { return !late.contains(op) && storesFewerBytes(op); }) &&
         llvm::any_of(ops, [&](Operation *op) { return late.contains(op); });
}

/// Whether passes over large tensors have one in common, or one of the groups has none. Over small values alone, each
/// would keep its operands in memory until the last of them is made.
bool Grouper::shareElements(unsigned a, unsigned b) const {
  SmallPtrSet<void *, 16> touched;
  for (Operation *op : graph.ops(a))
    for (Value value : valuesOf(op))
      if (isLarge(value))
        touched.insert(value.getAsOpaquePointer());
  if (touched.empty())
    return true;
  bool any = false;
  for (Operation *op : graph.ops(b))
    for (Value value : valuesOf(op)) {
      if (!isLarge(value))
        continue;
      if (touched.contains(value.getAsOpaquePointer()))
        return true;
      any = true;
    }
  return !any;
}

//===----------------------------------------------------------------------===//
// Merges
//===----------------------------------------------------------------------===//

/// Merges `b` into `a` where one kernel can compute both. Returns whether it did.
bool Grouper::tryMerge(unsigned a, unsigned b) {
  if (a == b)
    return false;
  Operation *first = graph.ops(a).front(), *second = graph.ops(b).front();
  if (bundles.updates.contains(first) != bundles.updates.contains(second) || bundles.sums.contains(first) ||
      bundles.sums.contains(second))
    return false;
  std::pair<size_t, size_t> sizes{graph.ops(a).size(), graph.ops(b).size()};
  auto [known, isNew] = refused.try_emplace({a, b}, sizes);
  if (!isNew && known->second == sizes)
    return false;
  known->second = sizes;
  if (sizes.first + sizes.second > KernelRules::maxOps)
    return keepApart(a, b, "expected at most 256 ops");
  SmallVector<Operation *> ops = graph.inOrder(a, b);
  OpSet members(ops.begin(), ops.end());
  if (mixesRematerialized(ops))
    return keepApart(a, b, "expected what is rematerialized for the backward pass to stay there");
  if (mixesStored(ops))
    return keepApart(a, b, "expected what the backward pass reads in fewer bytes to be stored");
  if (kernels.memoryBound && !shareElements(a, b))
    return keepApart(a, b, "expected a large tensor that both pass over");
  if (waits.delays(ops, members))
    return keepApart(a, b, "expected no update that waits longer than for its gradient");
  if (StringRef reason = rules.whyNot(ops, members); !reason.empty())
    return keepApart(a, b, reason);
  if (!graph.bringTogether(a, b))
    return keepApart(a, b, "expected no value that leaves and comes back through a third");
  graph.merge(a, b);
  return true;
}

/// Joins the backward pass's elements of rows with the rows' sums, where nothing was joined so far.
void Grouper::joinRowGradients() {
  RowGradients gradients(graph, rules, late, bundles.updates);
  for (auto reduce : block.getOps<ReduceOp>())
    if (isRowSum(reduce) && !late.contains(reduce) && graph.isAlone(reduce))
      gradients.join(reduce);
}

/// Producers into consumers, from the last consumer back: a chain grows from its end, where its results are due.
void Grouper::mergeProducers() {
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation &op : llvm::reverse(block)) {
      if (!isFusible(&op))
        continue;
      for (Value operand : op.getOperands())
        if (Operation *source = operand.getDefiningOp(); source && isFusible(source))
          changed |= tryMerge(graph.groupOf(&op), graph.groupOf(source));
    }
  }
}

/// Readers of one value that walk it alike share the pass over it.
void Grouper::mergeReaders(Value value) {
  const size_t mostKernels = kernels.memoryBound ? 8 : 1; // that a further reader is compared with
  SmallVector<Operation *> firsts;
  for (Operation *user : value.getUsers()) {
    if (!isFusible(user) || bundles.updates.contains(user) || bundles.sums.contains(user))
      continue;
    bool merged = false;
    for (Operation *first : firsts)
      merged =
          merged || graph.groupOf(first) == graph.groupOf(user) || tryMerge(graph.groupOf(first), graph.groupOf(user));
    if (!merged && firsts.size() < mostKernels)
      firsts.push_back(user);
  }
}

void Grouper::run() {
  if (kernels.keptRows)
    rules.rowTerms = findRowTerms(block);
  if (kernels.bundles)
    bundles.bundleSums();
  if (kernels.keptRows)
    joinRowGradients();
  mergeProducers();
  for (Value argument : block.getArguments())
    mergeReaders(argument);
  for (Operation &op : block)
    for (Value result : op.getResults())
      mergeReaders(result);
  if (kernels.bundles)
    bundles.bundleUpdates();
}

SmallVector<Group> Grouper::groups() const {
  SmallVector<Group> result;
  for (unsigned i = 0, n = graph.sequence().size(); i < n; ++i)
    if (ArrayRef<Operation *> ops = graph.ops(i); !ops.empty() && isFusible(ops.front()))
      result.push_back({SmallVector<Operation *>(ops)});
  return result;
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

Operation *Group::root() const {
  auto reduce = llvm::find_if(members, isReduction);
  return reduce != members.end() ? *reduce : members.back();
}

SmallVector<Group> mpt::groupOps(func::FuncOp function, const KernelCapabilities &kernels) {
  Block &block = function.getBody().front();
  OpSet backward = backwardOps(function);
  cloneCheapOps(block);
  Grouper grouper(block, kernels, std::move(backward));
  grouper.run();
  return grouper.groups();
}

SmallVector<Group> mpt::separateOps(func::FuncOp function) {
  SmallVector<Group> result;
  for (Operation &op : function.getBody().front())
    if (isFusible(&op))
      result.push_back({{&op}});
  return result;
}
