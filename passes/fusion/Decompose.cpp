// SPDX-License-Identifier: Apache-2.0
// --fusion-decompose: composites in simpler ops, and reductions in two stages.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Interfaces/FusionRole.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"

namespace mpt {
#define GEN_PASS_DEF_DECOMPOSE
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t fewResults = 64;       ///< units of work below which a reduction alone cannot occupy the threads
constexpr int64_t longReduction = 32768; ///< elements that are worth a second stage
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

/// Shows `joined` dimensions from `axis` on as (blocks, rest). Cheap arithmetic before it is made again on the new
/// shape, so that it runs inside the reduction's kernel: a reshape would ask for its result in memory.
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
  static SplatElementsAttr splatOf(Operation *op) {
    auto constant = dyn_cast_or_null<ConstantOp>(op);
    return constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
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
             return !isa_and_nonnull<BroadcastOp>(source) || goesThrough(source, depth + 1);
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
  /// Nobody else reads the result, or everybody can make it again from one operand in memory.
  static bool isFree(Operation *op) {
    Value result = op->getResult(0);
    if (result.hasOneUse())
      return true;
    SmallPtrSet<void *, 2> inMemory;
    for (Value operand : op->getOperands())
      if (!isa_and_nonnull<BroadcastOp, ConstantOp>(operand.getDefiningOp()))
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

/// Partial results over blocks, then their reduction. The number of blocks follows from the shape alone.
bool split(ReduceOp op) {
  RankedTensorType x = tensorType(op.getX()), y = tensorType(op.getY());
  ArrayRef<int64_t> shape = x.getShape(), axes = op.getAxes();
  int64_t results = y.getNumElements(), count = results ? x.getNumElements() / results : 0;
  bool columns = !axes.empty() && axes.front() == 0 && results > 1;
  // Columns are summed in vectors, which divides the number of units.
  if (x.getNumElements() < longReduction || (columns ? results / 64 : results) >= fewResults || count < 64)
    return false;
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  ReduceKind kind = op.getKind() == ReduceKind::mean ? ReduceKind::sum : op.getKind();
  Value value = op.getX();
  SmallVector<int64_t> first, second;
  if (axes.size() > 1 && shape[axes.front()] >= 8 && shape[axes.front()] <= 65536) {
    // The first reduced dimension is the block; the others are reduced within it.
    first.assign(axes.begin() + 1, axes.end());
    second = {axes.front()};
  } else {
    // One reduced dimension, made of blocks: a view of the same elements.
    int64_t axis = axes.front(), span = 1;
    size_t joined = 1;
    while (joined < axes.size() && axes[joined] == axis + static_cast<int64_t>(joined))
      ++joined;
    span = product(shape.slice(axis, joined));
    int64_t blocks = blocksOf(span);
    if (blocks < 4 || joined != axes.size())
      return false;
    value = Blocks(b, axis, static_cast<int64_t>(joined), blocks, span / blocks).of(value);
    first = {axis + 1};
    second = {axis};
  }
  Type element = x.getElementType();
  auto wide = dyn_cast<FloatType>(element);
  if (wide && kind != ReduceKind::max && kind != ReduceKind::min)
    wide = wideType(element);
  RankedTensorType partial = tensorType(b.reduce(kind, value, first));
  if (wide)
    partial = partial.clone(wide);
  value = ReduceOp::create(builder, op.getLoc(), partial, value, kind, first, op.getNumericsAttr());
  RankedTensorType total = y.clone(partial.getElementType());
  value = ReduceOp::create(builder, op.getLoc(), total, value, kind, second, NumericsAttr());
  if (op.getKind() == ReduceKind::mean)
    value = b.div(value, b.splatLike(value, static_cast<double>(count)));
  op.getY().replaceAllUsesWith(b.cast(value, y.getElementType()));
  op.erase();
  return true;
}

/// The variance E(x - E x)^2 of elements that one block cannot keep as E x^2 - (E x)^2 with FP64 sums of FP64 squares:
/// what cancels out lies beyond FP32's digits unless the mean is 10^4 deviations away.
bool fuseMoments(ReduceOp variance) {
  auto square = variance.getX().getDefiningOp<MulOp>();
  auto centered = square && square.getLhs() == square.getRhs() ? square.getLhs().getDefiningOp<SubOp>() : SubOp();
  auto along = centered ? centered.getRhs().getDefiningOp<BroadcastOp>() : BroadcastOp();
  auto mean = along ? along.getX().getDefiningOp<ReduceOp>() : ReduceOp();
  if (!mean || variance.getKind() != ReduceKind::mean || mean.getKind() != ReduceKind::mean ||
      mean.getX() != centered.getLhs() || mean.getAxes() != variance.getAxes() ||
      !tensorType(mean.getY()).getElementType().isF32() || !tensorType(variance.getY()).getElementType().isF32())
    return false;
  RankedTensorType x = tensorType(mean.getX());
  ArrayRef<int64_t> axes = mean.getAxes();
  bool wholeRows = !axes.empty() && axes.front() == x.getRank() - static_cast<int64_t>(axes.size());
  if (wholeRows && x.getNumElements() / std::max<int64_t>(1, tensorType(mean.getY()).getNumElements()) < longReduction)
    return false;
  OpBuilder builder(mean);
  GraphBuilder b(builder, mean.getLoc());
  Type wide = builder.getF64Type();
  Value wideX = b.cast(mean.getX(), wide);
  Value first = b.mean(wideX, axes), second = b.mean(b.mul(wideX, wideX), axes);
  Value result = b.sub(second, b.mul(first, first));
  result = b.make<MaxOp>(result, b.splatLike(result, 0.0));
  mean.getY().replaceAllUsesWith(b.cast(first, builder.getF32Type()));
  variance.getY().replaceAllUsesWith(b.cast(result, builder.getF32Type()));
  variance.erase();
  return true;
}

/// Arithmetic at each element's own index, on one tensor and numbers.
bool isPlain(Operation *op) {
  auto lowering = dyn_cast<LoopLowering>(op);
  if (!lowering || isViewOp(op) || isa<ReduceOp, BroadcastOp>(op) || lowering.standsAlone() || !lowering.isCheap() ||
      op->getNumResults() != 1)
    return false;
  return llvm::all_of(op->getOpOperands(), [&](OpOperand &operand) {
    return lowering.readsOwnIndex(operand.getOperandNumber()) &&
           tensorType(operand.get()).getShape() == tensorType(op->getResult(0)).getShape();
  });
}
bool isNumber(Value value) {
  if (auto broadcast = value.getDefiningOp<BroadcastOp>())
    return tensorType(broadcast.getX()).getNumElements() == 1 && tensorType(broadcast.getX()).getRank() == 0;
  auto constant = value.getDefiningOp<ConstantOp>();
  return constant && isa<SplatElementsAttr>(constant.getValue());
}
/// All elements become one: the shape that they are seen in does not matter.
bool reducesAll(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce && tensorType(reduce.getY()).getRank() == 0;
}

/// Axes of a sum down the columns of `value` (a bias gradient); empty without one.
SmallVector<int64_t> columnAxesOf(Value value) {
  for (Operation *user : value.getUsers()) {
    if (auto cast = dyn_cast<CastOp>(user))
      if (SmallVector<int64_t> axes = columnAxesOf(cast.getY()); !axes.empty())
        return axes;
    auto reduce = dyn_cast<ReduceOp>(user);
    if (reduce && !reducesAll(reduce) && reduce.getAxes() == ArrayRef<int64_t>(axisRange(0, reduce.getAxes().size())))
      return SmallVector<int64_t>(reduce.getAxes());
  }
  return {};
}

/// Arithmetic on a reshaped tensor that a kernel makes or adds up is done on the tensor in the kernel's shape, where
/// nothing but calls and reductions to one number follow: it can be part of that kernel then, which a reshape would
/// end.
class BeforeReshapes {
public:
  explicit BeforeReshapes(func::FuncOp function) : function(function) {}
  void run() {
    for (auto reshape : llvm::make_early_inc_range(function.getOps<ReshapeOp>())) {
      Operation *source = reshape.getX().getDefiningOp();
      if ((!source || !isa<LoopLowering>(source) || isViewOp(source)) && columnAxesOf(reshape.getX()).empty())
        continue;
      for (Operation *user : usersOf(reshape.getY()))
        if (moves(user, reshape.getY(), 0))
          move(user, reshape.getY(), reshape.getX());
    }
  }

private:
  static SmallVector<Operation *> usersOf(Value value) {
    llvm::SmallSetVector<Operation *, 4> users(value.user_begin(), value.user_end());
    return users.takeVector();
  }
  bool moves(Operation *op, Value reshaped, unsigned depth) const {
    if (reducesAll(op))
      return true;
    if (depth > 8 || !isPlain(op) ||
        !llvm::all_of(op->getOperands(), [&](Value operand) { return operand == reshaped || isNumber(operand); }))
      return false;
    return llvm::all_of(op->getUsers(), [&](Operation *user) {
      return !isa<LoopLowering>(user) || isViewOp(user) || moves(user, op->getResult(0), depth + 1);
    });
  }
  void move(Operation *op, Value reshaped, Value original) {
    OpBuilder builder(op);
    GraphBuilder b(builder, op->getLoc());
    ArrayRef<int64_t> shape = tensorType(original).getShape();
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      SmallVector<int64_t> axes = axisRange(0, static_cast<int64_t>(shape.size()));
      Value value = ReduceOp::create(builder, op->getLoc(), reduce.getY().getType(), original, reduce.getKind(), axes,
                                     reduce.getNumericsAttr());
      reduce.getY().replaceAllUsesWith(value);
      op->erase();
      return;
    }
    IRMapping mapping;
    for (Value operand : op->getOperands()) {
      if (operand == reshaped)
        mapping.map(operand, original);
      else if (auto broadcast = operand.getDefiningOp<BroadcastOp>())
        mapping.map(operand, b.broadcast(broadcast.getX(), shape, {}));
      else
        mapping.map(operand, b.constant(cast<SplatElementsAttr>(operand.getDefiningOp<ConstantOp>().getValue())
                                            .resizeSplat(tensorType(operand).clone(shape))));
    }
    Operation *copy = builder.clone(*op, mapping);
    Value result = copy->getResult(0), old = op->getResult(0);
    result.setType(tensorType(old).clone(shape));
    for (Operation *user : usersOf(old))
      if (isa<LoopLowering>(user) && !isViewOp(user))
        move(user, old, result);
    if (!old.use_empty())
      old.replaceAllUsesWith(b.reshape(result, tensorType(old).getShape()));
    op->erase();
  }
  func::FuncOp function;
};

/// The largest element of what a kernel makes, row by row and then of the rows (where sums go down its columns, column
/// by column): the kernel can do the first. No bit changes.
bool splitExtremum(ReduceOp op) {
  RankedTensorType x = tensorType(op.getX());
  int64_t rank = x.getRank();
  if ((op.getKind() != ReduceKind::max && op.getKind() != ReduceKind::min) || !reducesAll(op) || rank < 2 ||
      x.getShape().back() < 32 || x.getNumElements() < longReduction)
    return false;
  Value made = op.getX();
  while (made.getDefiningOp() && isPlain(made.getDefiningOp()) && made.getDefiningOp()->getNumOperands() == 1)
    made = made.getDefiningOp()->getOperand(0);
  Operation *source = made.getDefiningOp();
  SmallVector<int64_t> first = columnAxesOf(made);
  if (first.empty()) {
    if (!source || !isa<LoopLowering>(source) || isViewOp(source) || cast<LoopLowering>(source).standsAlone())
      return false;
    first = {rank - 1};
  }
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  Value parts = b.reduce(op.getKind(), op.getX(), first);
  op.getY().replaceAllUsesWith(b.reduce(op.getKind(), parts, axisRange(0, rank - static_cast<int64_t>(first.size()))));
  op.erase();
  return true;
}

/// Sums of scattered narrow values run in FP32 and are rounded once.
void widenScatter(ScatterAddOp op) {
  RankedTensorType y = tensorType(op.getY());
  auto element = dyn_cast<FloatType>(y.getElementType());
  if (!element || element.getWidth() >= 32)
    return;
  OpBuilder builder(op);
  GraphBuilder b(builder, op.getLoc());
  Value wide = ScatterAddOp::create(builder, op.getLoc(), y.clone(wideType(element)), op.getIndices(),
                                    b.widen(op.getUpdates()), op.getAxis());
  op.getY().replaceAllUsesWith(b.cast(wide, element));
  op.erase();
}

struct Decompose : mpt::impl::DecomposeBase<Decompose> {
  using DecomposeBase::DecomposeBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      for (bool changed = true; changed;) {
        changed = false;
        for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
          auto composite = dyn_cast<Decomposable>(op);
          if (!composite || isa<LoopLowering>(op))
            continue;
          OpBuilder builder(&op);
          FailureOr<SmallVector<Value>> values = composite.decompose(builder);
          if (failed(values)) {
            op.emitOpError() << "expected a decomposition into ops with loop forms";
            return signalPassFailure();
          }
          op.replaceAllUsesWith(*values);
          op.erase();
          changed = true;
        }
      }
      for (ScatterAddOp op : llvm::make_early_inc_range(function.getOps<ScatterAddOp>()))
        widenScatter(op);
      for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
        device ? fuseMoments(op) : (numSplit += split(op), true);
      if (device) {
        BeforeReshapes(function).run();
        for (ReduceOp op : llvm::make_early_inc_range(function.getOps<ReduceOp>()))
          numSplit += splitExtremum(op);
      }
      eraseUnused(function);
    }
  }

  /// What no result or write needs; decompositions make more than is used.
  static void eraseUnused(func::FuncOp function) {
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }
};

} // namespace
