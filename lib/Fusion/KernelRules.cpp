// SPDX-License-Identifier: Apache-2.0
// One iteration space, no value that leaves and comes back, every result written in one pass.
#include "KernelRules.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t fewSums = 16; ///< of scalar arithmetic, where one block makes them one after the other

/// Whether something else than `members` reads `value`.
bool leaves(Value value, const KernelRules::OpSet &members) {
  return llvm::any_of(value.getUsers(), [&](Operation *user) { return !members.contains(user); });
}

/// Whether `op` is a cheap value of a smaller shape that only broadcasts in the group read: rematerialized wherever
/// they need it.
bool feedsBroadcasts(Operation *op, const KernelRules::OpSet &members) {
  auto lowering = cast<LoopLowering>(op);
  if (isReduction(op) || op->getNumResults() != 1 || !lowering.isCheap())
    return false;
  for (OpOperand &operand : op->getOpOperands())
    if (!lowering.readsOwnIndex(operand.getOperandNumber()) && !isBroadcast(op))
      return false;
  return llvm::all_of(op->getUsers(), [&](Operation *user) {
    return members.contains(user) && (isBroadcast(user) || (!isReduction(user) && feedsBroadcasts(user, members)));
  });
}

/// Whether `op` waits for a reduction of the group. Each op is looked at once, however many read it.
bool followsSum(Operation *op, const KernelRules::OpSet &members) {
  llvm::SmallSetVector<Operation *, 8> behind;
  behind.insert(op);
  for (size_t i = 0; i < behind.size(); ++i)
    for (Value operand : behind[i]->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!source || !members.contains(source))
        continue;
      if (isReduction(source))
        return true;
      behind.insert(source);
    }
  return false;
}

} // namespace

KernelRules::Scalars KernelRules::scalarsOf(ArrayRef<Operation *> ops, const OpSet &members) const {
  int64_t numSums = 0, summed = 0;
  for (Operation *op : ops) {
    for (Value result : op->getResults())
      if (countOf(result) > smallSpace || (leaves(result, members) && countOf(result) != 1))
        return Scalars::No;
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      if (countOf(reduce.getX()) > smallSpace)
        return Scalars::No;
      ++numSums;
      summed += countOf(reduce.getX());
    }
  }
  if (!kernels.sharedSums || numSums <= 1 || (numSums <= fewSums && summed <= 2 * smallSpace))
    return Scalars::Fits;
  return numSums > fewSums ? Scalars::TooManySums : Scalars::No;
}

KernelRules::Space KernelRules::spaceOf(ArrayRef<Operation *> ops) const {
  Space space;
  auto found = llvm::find_if(ops, [](Operation *op) { return isa<ReduceOp>(op); });
  space.hasReduction = found != ops.end();
  if (space.hasReduction) {
    auto reduce = cast<ReduceOp>(*found);
    space.shape = shapeOf(reduce.getX());
    space.rows = shapeOf(reduce.getY());
    space.axes = reduce.getAxes();
    space.wholeRows = !space.axes.empty() &&
                      space.axes.front() == static_cast<int64_t>(space.shape.size() - space.axes.size()) &&
                      countOf(reduce.getY()) >= 8;
  } else {
    space.shape = shapeOf(ops.back()->getResult(0));
  }
  for (int64_t extent : space.shape)
    space.count *= extent;
  return space;
}

StringRef KernelRules::whyNotResult(Operation *op, Value result, const Space &space, const OpSet &members) const {
  ArrayRef<int64_t> shape = shapeOf(result);
  if (shape != space.shape && !(space.hasReduction && shape == space.rows)) {
    if (!feedsBroadcasts(op, members) || countOf(result) >= space.count)
      return "expected results in the iteration space, or in that of its rows";
    return "";
  }
  bool written = space.hasReduction && shape == space.shape && !space.wholeRows && leaves(result, members);
  if (written && !kernels.columnOutputs)
    return "expected no elements written beside sums down columns";
  // A pass down columns may write its terms, and nothing that waits for the sums. Terms that rows add up as well are
  // made with the rows' sums: ops behind these read them again, and so may the columns.
  if (written && rowTerms.contains(op))
    return "expected elements that no sum of rows adds up as well";
  return "";
}

StringRef KernelRules::whyNotOperand(OpOperand &operand, const Space &space, const OpSet &members) const {
  Operation *op = operand.getOwner(), *source = operand.get().getDefiningOp();
  if (!source || !members.contains(source) || isReduction(op))
    return "";
  if (auto broadcast = dyn_cast<BroadcastOp>(op)) {
    // Back from the rows' values to their elements.
    ArrayRef<int64_t> from = shapeOf(broadcast.getX()), to = shapeOf(broadcast.getY());
    // Results of sums down columns are there when their pass is over.
    bool waits = kernels.sharedSums && !space.wholeRows && followsSum(source, members);
    if (from == to || (feedsBroadcasts(source, members) && !waits))
      return "";
    if (!space.wholeRows || from != space.rows || to != space.shape ||
        !llvm::equal(broadcast.getDims(), axisRange(0, space.rows.size())))
      return "expected broadcasts from the rows' results to their elements";
    return "";
  }
  if (!cast<LoopLowering>(op).readsOwnIndex(operand.getOperandNumber()))
    return "expected members read at the same index";
  return "";
}

/// The number of tensors that a kernel of the ops reads from memory and writes to it, scalars aside.
size_t KernelRules::tensorsOf(ArrayRef<Operation *> ops, const OpSet &members) {
  DenseSet<Value> tensors;
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (Operation *source = operand.getDefiningOp();
          (!source || (!members.contains(source) && !isSplat(source))) && countOf(operand) > 1)
        tensors.insert(operand);
    for (Value result : op->getResults())
      if (leaves(result, members))
        tensors.insert(result);
  }
  return tensors.size();
}

StringRef KernelRules::whyNot(ArrayRef<Operation *> ops, const OpSet &members) const {
  if (ops.size() > maxOps)
    return "expected at most 256 ops";
  if (llvm::any_of(ops, [](Operation *op) { return cast<LoopLowering>(op).standsAlone(); }))
    return "expected no op that has a kernel of its own";
  Scalars scalars = scalarsOf(ops, members);
  if (scalars != Scalars::No)
    return scalars == Scalars::Fits ? "" : "expected at most 16 sums of scalar arithmetic";
  if (ops.size() > maxTensors / 4 && tensorsOf(ops, members) > maxTensors)
    return "expected at most 128 tensors";
  Space space = spaceOf(ops);
  for (Operation *op : ops) {
    if (auto reduce = dyn_cast<ReduceOp>(op);
        reduce && (shapeOf(reduce.getX()) != space.shape || reduce.getAxes() != space.axes))
      return "expected reductions along the same axes of one space";
    for (Value result : op->getResults())
      if (StringRef reason = whyNotResult(op, result, space, members); !reason.empty())
        return reason;
    for (OpOperand &operand : op->getOpOperands())
      if (StringRef reason = whyNotOperand(operand, space, members); !reason.empty())
        return reason;
  }
  return "";
}
