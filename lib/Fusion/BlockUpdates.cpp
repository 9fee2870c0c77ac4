// SPDX-License-Identifier: Apache-2.0
// Updates of 8-bit optimizer states in the shape of their blocks.
// Matcher: arithmetic element by element between codes and the new values of states.
#include "mpt/Fusion/BlockUpdates.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/OptimizerUpdate.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Whether elements of the results depend on scalars and on elements at their positions alone, or on their block.
bool keepsPositions(Operation *op) {
  if (auto update = dyn_cast<OptimizerUpdate>(op))
    return update.isElementwise();
  return op->hasTrait<OpTrait::Elementwise>() || isa<CastOp, EncodeBlocksOp, DecodeBlocksOp>(op);
}

/// The ops around codes of one shape and block, which read and write tensors of `whole`.
class BlockRegion {
public:
  explicit BlockRegion(EncodeBlocksOp op)
      : whole(shapeOf(op.getCodes())), rows{countOf(op.getScales()), op.getBlock()} {}

  void grow(Operation *seed);
  int64_t move();

private:
  bool isWhole(Value value) const { return shapeOf(value) == ArrayRef(whole); }
  /// Whether `value` is cheaper made again than read.
  static bool repeatsScalar(Value value) {
    auto broadcast = value.getDefiningOp<BroadcastOp>();
    return isSplat(value.getDefiningOp()) || (broadcast && countOf(broadcast.getX()) == 1);
  }
  /// Whether an op that others read too may be computed a second time: from one tensor at most.
  bool isRepeatable(Operation *op) const {
    return llvm::count_if(op->getOperands(),
                          [&](Value operand) { return isWhole(operand) && !repeatsScalar(operand); }) <= 1;
  }
  bool mayEnter(Operation *op) const {
    return op && keepsPositions(op) && llvm::any_of(op->getResults(), [&](Value result) { return isWhole(result); });
  }
  void addSources(Operation *op, SmallVectorImpl<Operation *> &work);
  Value asRows(Value value, GraphBuilder &b, IRMapping &mapping) const;

  SmallVector<int64_t> whole, rows;
  SetVector<Operation *> ops, repeated; ///< the region; ops of it that others read as well, which keep them as they are
};

/// Adds the ops connected with `seed`: readers of its results, and producers of its operands.
void BlockRegion::grow(Operation *seed) {
  SmallVector<Operation *> work{seed};
  while (!work.empty()) {
    Operation *op = work.pop_back_val();
    if (!mayEnter(op))
      continue;
    repeated.remove(op);
    if (!ops.insert(op))
      continue;
    for (Value result : op->getResults())
      if (isWhole(result))
        llvm::append_range(work, result.getUsers());
    addSources(op, work);
  }
}

void BlockRegion::addSources(Operation *op, SmallVectorImpl<Operation *> &work) {
  for (Value operand : op->getOperands()) {
    Operation *source = operand.getDefiningOp();
    if (!mayEnter(source) || !isWhole(operand) || repeatsScalar(operand) || ops.contains(source))
      continue;
    if (operand.hasOneUse() && ops.contains(op))
      work.push_back(source);
    else if (isRepeatable(source) && repeated.insert(source))
      addSources(source, work);
  }
}

Value BlockRegion::asRows(Value value, GraphBuilder &b, IRMapping &mapping) const {
  if (Value known = mapping.lookupOrNull(value))
    return known;
  if (!isWhole(value))
    return value;
  Value result;
  if (SplatElementsAttr splat = splatOf(value.getDefiningOp()))
    result = b.constant(splat.resizeSplat(tensorType(value).clone(rows)));
  else if (repeatsScalar(value))
    result = b.broadcast(b.reshape(value.getDefiningOp()->getOperand(0), {}), rows, {});
  else
    result = b.reshape(value, rows);
  return result;
}

int64_t BlockRegion::move() {
  IRMapping mapping;
  SmallVector<Operation *> sorted(ops.begin(), ops.end());
  llvm::append_range(sorted, repeated);
  llvm::sort(sorted, [](Operation *a, Operation *b) { return a->isBeforeInBlock(b); });
  for (Operation *op : sorted) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    IRMapping operands;
    for (Value operand : op->getOperands())
      operands.map(operand, asRows(operand, b, mapping));
    Operation *copy = builder.clone(*op, operands);
    for (auto [old, result] : llvm::zip_equal(op->getResults(), copy->getResults())) {
      if (!isWhole(old)) {
        old.replaceAllUsesWith(result);
        continue;
      }
      result.setType(tensorType(old).clone(rows));
      mapping.map(old, result);
      auto isOutside = [&](OpOperand &use) {
        return !ops.contains(use.getOwner()) && !repeated.contains(use.getOwner());
      };
      if (ops.contains(op) && llvm::any_of(old.getUses(), isOutside))
        old.replaceUsesWithIf(b.reshape(result, whole), isOutside);
    }
  }
  for (Operation *op : llvm::reverse(sorted))
    if (op->use_empty())
      op->erase();
  return static_cast<int64_t>(sorted.size());
}

/// The first op whose codes lie in another shape than a row a block; null without one.
EncodeBlocksOp findEncoding(func::FuncOp function) {
  for (auto encode : function.getOps<EncodeBlocksOp>())
    if (shapeOf(encode.getCodes()) != ArrayRef({countOf(encode.getScales()), encode.getBlock()}))
      return encode;
  return {};
}

} // namespace

int64_t mpt::shapeAsBlocks(func::FuncOp function) {
  int64_t moved = 0;
  while (EncodeBlocksOp encode = findEncoding(function)) {
    BlockRegion region(encode);
    region.grow(encode);
    moved += region.move();
  }
  return moved;
}
