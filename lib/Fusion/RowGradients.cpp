// SPDX-License-Identifier: Apache-2.0
// From a sum along the rows' scalars to elements of the backward pass.
#include "RowGradients.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t longRow = 16384; ///< elements of a row that a team of threads keeps only if it keeps nothing else

/// An ordinary member of a kernel with one result.
bool isArithmetic(Operation *op) { return isFusible(op) && !isReduction(op) && op->getNumResults() == 1; }

} // namespace

KernelRules::OpSet mpt::findRowTerms(Block &block) {
  DenseMap<Operation *, unsigned> calls; // on the longest way to an op
  DenseSet<Operation *> following;       // from sums of rows, as far as the next call
  for (Operation &op : block) {
    unsigned count = 0;
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp())
        count = std::max(count, calls.lookup(source));
    count += isLibraryCall(&op);
    calls[&op] = count;
    if (isFusible(&op) && llvm::any_of(op.getOperands(), [&](Value operand) {
          Operation *source = operand.getDefiningOp();
          return source && calls.lookup(source) == count && (isRowSum(source) || following.contains(source));
        }))
      following.insert(&op);
  }
  KernelRules::OpSet rowTerms;
  DenseSet<Operation *> added, readLater;
  for (Operation &op : llvm::reverse(block)) {
    if (!isArithmetic(&op) || countOf(op.getResult(0)) < largePass)
      continue;
    for (Operation *user : op.getResult(0).getUsers()) {
      if (calls[user] != calls[&op] || !isFusible(user))
        continue;
      bool same = !isReduction(user) && shapeOf(user->getResult(0)) == shapeOf(op.getResult(0));
      if (isRowSum(user) || (same && added.contains(user)))
        added.insert(&op);
      if (same && (following.contains(user) || readLater.contains(user)))
        readLater.insert(&op);
    }
    if (added.contains(&op) && readLater.contains(&op))
      rowTerms.insert(&op);
  }
  return rowTerms;
}

/// The first elements of the backward pass that follow from `sum`, and the rows' `scalars` on the way.
RowGradients::OpList RowGradients::elementsBehind(ReduceOp sum, OpList &scalars) const {
  ArrayRef<int64_t> space = shapeOf(sum.getX()), rows = shapeOf(sum.getY());
  OpList elements;
  scalars.insert(sum);
  for (size_t i = 0; i < scalars.size(); ++i)
    for (Operation *user : scalars[i]->getUsers()) {
      if (!isArithmetic(user))
        continue;
      if (shapeOf(user->getResult(0)) == rows)
        scalars.insert(user);
      else if (isBroadcast(user) && late.contains(user) && shapeOf(user->getResult(0)) == space)
        elements.insert(user);
    }
  return elements;
}

/// Adds the backward pass's arithmetic on the elements at the same index.
void RowGradients::addGradients(ReduceOp sum, OpList &elements) const {
  for (size_t i = 0; i < elements.size(); ++i)
    for (Operation *user : elements[i]->getUsers())
      if (isArithmetic(user) && late.contains(user) && shapeOf(user->getResult(0)) == shapeOf(sum.getX()))
        elements.insert(user);
}

/// The sums, the scalars that elements read, the elements, and the operands of all of them as far as they are elements
/// or rows' scalars.
RowGradients::OpList RowGradients::withOperands(ReduceOp sum, const OpList &scalars, const OpList &elements) const {
  ArrayRef<int64_t> space = shapeOf(sum.getX()), rows = shapeOf(sum.getY());
  // Scalars on the way, those next to the sum first; an element reads the last of them.
  DenseSet<Operation *> leading(elements.begin(), elements.end());
  for (Operation *scalar : llvm::reverse(scalars.getArrayRef()))
    if (llvm::any_of(scalar->getUsers(), [&](Operation *user) { return leading.contains(user); }))
      leading.insert(scalar);
  OpList wanted;
  for (Operation *scalar : scalars)
    if (leading.contains(scalar))
      wanted.insert(scalar);
  for (Operation *element : elements)
    wanted.insert(element);
  for (size_t i = 0; i < wanted.size(); ++i)
    for (Value operand : wanted[i]->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && isFusible(source) && !isSplat(source) && (shapeOf(operand) == space || shapeOf(operand) == rows))
        wanted.insert(source);
  return wanted;
}

bool RowGradients::mergeAll(ArrayRef<Operation *> wanted) {
  SmallVector<Operation *> ops(wanted);
  graph.sortByPosition(ops);
  KernelRules::OpSet members(ops.begin(), ops.end());
  if (llvm::any_of(ops, [&](Operation *op) { return !graph.isAlone(op) || updates.contains(op); }) ||
      !rules.whyNot(ops, members).empty())
    return false;
  return graph.mergeAll(ops);
}

bool RowGradients::join(ReduceOp sum) {
  OpList scalars;
  OpList elements = elementsBehind(sum, scalars);
  if (elements.empty())
    return false;
  addGradients(sum, elements);
  // Further sums of them, which that kernel would take in, leave no registers for a long row: it would be read for
  // each.
  bool isLong = countOf(sum.getX()) / countOf(sum.getY()) > longRow;
  if (isLong && llvm::any_of(elements, [](Operation *op) { return llvm::any_of(op->getUsers(), isReduction); }))
    return false;
  for (size_t i = 0; i < elements.size(); ++i)
    for (Value operand : elements[i]->getOperands())
      if (Operation *source = operand.getDefiningOp();
          source && isFusible(source) && late.contains(source) && !isReduction(source) && countOf(operand) > 1)
        elements.insert(source);
  OpList wanted = withOperands(sum, scalars, elements);
  if (!mergeAll(wanted.getArrayRef()))
    return false;
  for (Operation *op : wanted)
    removeAttr<MPTDialect::RecomputedAttrHelper>(op); // the forward pass is at its end: nothing is kept for long
  return true;
}
