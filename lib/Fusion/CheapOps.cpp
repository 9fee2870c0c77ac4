// SPDX-License-Identifier: Apache-2.0
// Which ops are cheap, and a clone of them for each reader.
#include "CheapOps.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Whether the elements of `op` follow from few elements or none.
bool needsNoTensor(Operation *op) { return isSplat(op) || isRematerializedByReaders(op); }

/// Arithmetic in a row that a reader does again: a longer chain whose values are read on the way, as a backward pass
/// reads them, would be repeated whole for each of them.
constexpr unsigned kLongestChain = 8;

/// The ops of a block that are better rematerialized for each reader: ops with no operand as large as the result, and
/// cheap arithmetic on one that is no larger in bytes.
class Cheap {
public:
  explicit Cheap(Block &block) {
    for (Operation &op : block)
      if (isFusible(&op) && op.getNumResults() == 1)
        if (unsigned length = lengthOf(&op); length <= kLongestChain)
          lengths[&op] = length;
  }
  bool contains(Operation *op) const { return lengths.contains(op); }

private:
  static constexpr unsigned kNotCheap = kLongestChain + 1;

  /// How many ops of arithmetic a reader does again.
  unsigned lengthOf(Operation *op) const {
    if (needsNoTensor(op))
      return 0;
    auto lowering = cast<LoopLowering>(op);
    if (!lowering.isCheap())
      return kNotCheap;
    Value full;
    for (OpOperand &operand : op->getOpOperands()) {
      if (!lowering.readsOwnIndex(operand.getOperandNumber()))
        return kNotCheap;
      Value value = operand.get();
      Operation *source = value.getDefiningOp();
      if (source && (needsNoTensor(source) || source->hasTrait<OpTrait::ConstantLike>()))
        continue;
      if (full && full != value)
        return kNotCheap;
      full = value;
    }
    bool isCheap = full && countOf(full) > 1 && bytesOf(full) <= bytesOf(op->getResult(0));
    return isCheap ? lengths.lookup(full.getDefiningOp()) + 1 : kNotCheap;
  }

  DenseMap<Operation *, unsigned> lengths;
};

/// A clone of `op` for every owner of `uses`; `spared`: the first of them keeps `op` itself.
void cloneForReaders(Operation &op, ArrayRef<OpOperand *> uses, bool spared) {
  DenseMap<Operation *, Value> copies;
  for (OpOperand *use : uses) {
    Operation *owner = use->getOwner();
    if (Value known = copies.lookup(owner)) {
      use->set(known);
      continue;
    }
    if (spared) {
      spared = false;
      copies[owner] = op.getResult(0);
      continue;
    }
    OpBuilder builder(owner);
    Value copy = builder.clone(op)->getResult(0);
    copies[owner] = copy;
    use->set(copy);
  }
}

} // namespace

void mpt::cloneCheapOps(Block &block) {
  Cheap cheap(block);
  for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block))) {
    if (!cheap.contains(&op))
      continue;
    SmallVector<OpOperand *> uses;
    bool stays = false; // something else than kernels reads it
    for (OpOperand &use : op.getResult(0).getUses())
      if (isFusible(use.getOwner()))
        uses.push_back(&use);
      else
        stays = true;
    // A value that is written for a library op anyway is read, not computed again.
    if (!uses.empty() && (!stays || needsNoTensor(&op)))
      cloneForReaders(op, uses, /*spared=*/!stays);
  }
}
