// SPDX-License-Identifier: Apache-2.0
// Reductions in two stages.
#include "mpt/Fusion/ReductionStages.h"

#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"
#include "mpt/Support/Refusal.h"

#include "mlir/IR/IRMapping.h"

#define DEBUG_TYPE "fusion-decompose"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t fewResults = 64; ///< units of work below which a reduction alone cannot occupy the threads
constexpr int64_t maxBlocks = 64;

/// The largest divisor of `extent` that is no more than maxBlocks.
int64_t blocksOf(int64_t extent) {
  for (int64_t blocks = std::min(maxBlocks, extent); blocks > 1; --blocks)
    if (extent % blocks == 0)
      return blocks;
  return 1;
}

int64_t product(ArrayRef<int64_t> values) {
  int64_t result = 1;
  for (int64_t value : values)
    result *= value;
  return result;
}

/// Shows `joined` dimensions from `axis` on as (blocks, rest). Cheap arithmetic before it is rematerialized on
/// the new shape, so that it runs inside the reduction's kernel: a reshape would ask for its result in memory.
class Blocks {
public:
  Blocks(GraphBuilder &b, int64_t axis, int64_t joined, int64_t blocks, int64_t rest)
      : b(b), axis(axis), joined(joined), extents{blocks, rest} {}

  Value of(Value value) {
    if (Value known = made.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    Value result;
    if (!goesThrough(op, 0))
      result = b.reshape(value, typeOf(value).getShape());
    else if (auto broadcast = dyn_cast<BroadcastOp>(op))
      result = ofBroadcast(broadcast);
    else if (SplatElementsAttr splat = splatOf(op))
      result = b.constant(splat.resizeSplat(typeOf(value)));
    else
      result = ofArithmetic(op);
    return made[value] = result;
  }

private:
  static constexpr unsigned maxDepth = 8;

  RankedTensorType typeOf(Value value) const {
    RankedTensorType type = tensorType(value);
    SmallVector<int64_t> shape(type.getShape().take_front(axis));
    shape.append(extents);
    llvm::append_range(shape, type.getShape().drop_front(axis + joined));
    return type.clone(shape);
  }
  /// `op` can be made on the new shape, down to values that are in memory anyway.
  bool goesThrough(Operation *op, unsigned depth) const {
    if (!op || depth > maxDepth)
      return false;
    if (auto broadcast = dyn_cast<BroadcastOp>(op))
      return repeats(broadcast).has_value();
    if (splatOf(op))
      return true;
    return isArithmetic(op) && isFree(op) && llvm::all_of(op->getOperands(), [&](Value operand) {
             Operation *source = operand.getDefiningOp();
             return !isBroadcast(source) || goesThrough(source, depth + 1);
           });
  }
  static bool isArithmetic(Operation *op) {
    auto lowering = dyn_cast<LoopLowering>(op);
    if (!lowering || isViewOp(op) || !lowering.isCheap() || op->getNumResults() != 1 || op->getNumOperands() == 0)
      return false;
    for (OpOperand &operand : op->getOpOperands())
      if (!lowering.readsOwnIndex(operand.getOperandNumber()))
        return false;
    return true;
  }
  /// Nobody else reads the result, or everybody can rematerialize it from one operand in memory.
  static bool isFree(Operation *op) {
    Value result = op->getResult(0);
    if (result.hasOneUse())
      return true;
    SmallPtrSet<void *, 2> inMemory;
    for (Value operand : op->getOperands())
      if (!isBroadcast(operand.getDefiningOp()) && !isConstant(operand.getDefiningOp()))
        inMemory.insert(operand.getAsOpaquePointer());
    return inMemory.size() <= 1 &&
           llvm::all_of(result.getUsers(), [](Operation *user) { return isa<LoopLowering>(user) && !isViewOp(user); });
  }
  Value ofArithmetic(Operation *op) {
    IRMapping mapping;
    for (Value operand : op->getOperands())
      mapping.map(operand, of(operand));
    Operation *copy = b.builder.clone(*op, mapping);
    copy->getResult(0).setType(typeOf(op->getResult(0)));
    return copy->getResult(0);
  }
  /// The operand's shape and dims of the same broadcast to the new shape; none where only some of the joined dimensions
  /// repeat.
  std::optional<std::pair<SmallVector<int64_t>, SmallVector<int64_t>>> repeats(BroadcastOp broadcast) const {
    ArrayRef<int64_t> from = tensorType(broadcast.getX()).getShape(), to = tensorType(broadcast.getY()).getShape();
    SmallVector<int64_t> shape, dims;
    int64_t inside = 0;
    for (auto [extent, d] : llvm::zip_equal(from, broadcast.getDims())) {
      if (d < axis || d >= axis + joined) {
        shape.push_back(extent);
        dims.push_back(d < axis ? d : d - joined + 2);
        continue;
      }
      if (extent != to[d])
        return std::nullopt;
      if (inside++ == 0) {
        shape.append(extents);
        dims.append({axis, axis + 1});
      }
    }
    if (inside != 0 && inside != joined)
      return std::nullopt;
    return std::make_pair(shape, dims);
  }
  Value ofBroadcast(BroadcastOp broadcast) {
    auto [shape, dims] = *repeats(broadcast);
    return b.broadcast(b.reshape(broadcast.getX(), shape), typeOf(broadcast.getY()).getShape(), dims);
  }

  GraphBuilder &b;
  int64_t axis, joined;
  SmallVector<int64_t, 2> extents;
  DenseMap<Value, Value> made;
};

/// The axes of the two stages, and the operand in the shape that has them.
struct Stages {
  Value operand;
  SmallVector<int64_t> first, second;
};

/// The stages of a reduction that is worth two; nothing where its axes have no blocks.
std::optional<Stages> stagesOf(ReduceOp op, GraphBuilder &b) {
  ArrayRef<int64_t> shape = shapeOf(op.getX()), axes = op.getAxes();
  if (axes.size() > 1 && shape[axes.front()] >= 8 && shape[axes.front()] <= 65536)
    // The first reduced dimension is the block; the others are reduced within it.
    return Stages{op.getX(), SmallVector<int64_t>(axes.drop_front()), {axes.front()}};
  // One reduced dimension, made of blocks: a view of the same elements.
  int64_t axis = axes.front();
  size_t joined = 1;
  while (joined < axes.size() && axes[joined] == axis + static_cast<int64_t>(joined))
    ++joined;
  int64_t span = product(shape.slice(axis, joined)), blocks = blocksOf(span);
  if (blocks < 4 || joined != axes.size())
    return std::nullopt;
  Value operand = Blocks(b, axis, static_cast<int64_t>(joined), blocks, span / blocks).of(op.getX());
  return Stages{operand, {axis + 1}, {axis}};
}

/// Few results over so many elements that the reduction alone cannot occupy the threads.
bool isLong(ReduceOp op) {
  ArrayRef<int64_t> axes = op.getAxes();
  int64_t results = countOf(op.getY()), count = results ? countOf(op.getX()) / results : 0;
  bool columns = !axes.empty() && axes.front() == 0 && results > 1;
  // Columns are summed in vectors, which divides the number of units.
  return countOf(op.getX()) >= longReduction && (columns ? results / 64 : results) < fewResults && count >= 64;
}

} // namespace

bool mpt::splitInBlocks(ReduceOp op) {
  if (!isLong(op))
    return refuse(DEBUG_TYPE, op) << "not split: expected at most " << fewResults << " units of at least "
                                  << longReduction << " terms in all, got " << countOf(op.getY()) << " results of "
                                  << countOf(op.getX()) << " terms";
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  std::optional<Stages> stages = stagesOf(op, b);
  if (!stages)
    return refuse(DEBUG_TYPE, op) << "not split: expected neighbouring axes of four blocks or more";
  RankedTensorType y = tensorType(op.getY());
  ReduceKind kind = op.getKind() == ReduceKind::mean ? ReduceKind::sum : op.getKind();
  Type element = elementOf(op.getX());
  NumericsAttr numerics = op.getNumericsAttr();
  auto wide = dyn_cast<FloatType>(element);
  if (wide && kind != ReduceKind::max && kind != ReduceKind::min)
    wide = wideType(numerics && numerics.getAcc().getIntOrFloatBitWidth() > 32 ? numerics.getAcc() : element);
  RankedTensorType partial = tensorType(b.reduce(kind, stages->operand, stages->first));
  if (wide)
    partial = partial.clone(wide);
  // Partial sums are delivered as they are gathered: only the total is rounded to the result's type.
  if (numerics && wide)
    numerics = NumericsAttr::get(op.getContext(), numerics.getIn(), numerics.getAcc(), wide);
  Value value = ReduceOp::create(builder, op.getLoc(), partial, stages->operand, kind, stages->first, numerics);
  RankedTensorType total = y.clone(partial.getElementType());
  value = ReduceOp::create(builder, op.getLoc(), total, value, kind, stages->second, NumericsAttr());
  if (op.getKind() == ReduceKind::mean) {
    int64_t terms = countOf(op.getX()) / y.getNumElements();
    value = b.div(value, b.splatLike(value, static_cast<double>(terms)));
  }
  op.getY().replaceAllUsesWith(b.cast(value, y.getElementType()));
  op.erase();
  return true;
}
