// SPDX-License-Identifier: Apache-2.0
// --fusion-compact-tables: the gradient of an embedding keeps the rows that a batch has read, not the table.
// Matcher: arithmetic between a table and an update in blocks: casts and scalars on the way are made in their shape.
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Support/Refusal.h"
#include "passes/fusion/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

namespace mpt {
#define GEN_PASS_DEF_COMPACTTABLES
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

#define DEBUG_TYPE "fusion-compact-tables"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kFewestElements = 1 << 16; ///< of a table whose memory counts
constexpr size_t kLongestChain = 8;          ///< operations that a reader does again
constexpr int64_t kLeastShare = 2;           ///< rows of the table for each row that is read

/// Sums of updates, one row for each that a batch reads, and the row of each row of the table.
class CompactSums {
public:
  explicit CompactSums(ScatterAddOp scatter) : loc(scatter.getLoc()), table(tensorType(scatter.getY())) {
    OpBuilder builder(scatter);
    GraphBuilder b(builder, loc);
    ArrayRef<int64_t> shape = table.getShape();
    int64_t rows = countOf(scatter.getIndices());
    auto places = [&](int64_t count) { return RankedTensorType::get({count}, builder.getI32Type()); };
    Value ids = b.reshape(scatter.getIndices(), {rows});
    // Rows of one index meet in the place of the last one.
    place = b.make<ScatterElementsOp>(b.splat(places(shape[0]), -1), ids, b.make<IotaOp>(places(rows), 0), 0,
                                      ScatterKind::assign);
    SmallVector<int64_t> compact(shape);
    compact[0] = rows;
    auto sum = ScatterAddOp::create(builder, loc, table.clone(compact), b.make<GatherOp>(place, ids, 0),
                                    b.reshape(scatter.getUpdates(), compact), 0);
    sum->setDiscardableAttrs(scatter->getDiscardableAttrDictionary());
    sums = sum.getY();
  }

  /// The whole table, for `reader` to compute where it wants it.
  Value tableFor(Operation *reader) const {
    OpBuilder builder(reader);
    GraphBuilder b(builder, loc);
    Value isRead = b.broadcast(b.compare(Predicate::ge, place, 0.0), table.getShape(), {0});
    return b.select(isRead, b.make<GatherOp>(sums, place, 0), b.splat(table, 0.0));
  }

  /// The same with each row as several, as updates in blocks see it.
  CompactSums inBlocks(Operation *before, RankedTensorType blocks) const {
    OpBuilder builder(before);
    GraphBuilder b(builder, loc);
    int64_t rows = table.getDimSize(0), parts = blocks.getDimSize(0) / rows;
    auto type = RankedTensorType::get({rows, parts}, builder.getI32Type());
    Value whole = b.broadcast(place, type.getShape(), {0});
    Value part = b.add(b.mul(whole, b.splat(type, parts)), b.make<IotaOp>(type, 1));
    Value own = b.select(b.compare(Predicate::ge, whole, 0.0), part, b.splat(type, -1));
    CompactSums split(*this);
    split.table = blocks;
    split.place = b.reshape(own, {rows * parts});
    split.sums = b.reshape(sums, {tensorType(sums).getDimSize(0) * parts, blocks.getDimSize(1)});
    return split;
  }
  /// Whether rows of `shown` are equal parts of the table's rows.
  bool isInBlocks(RankedTensorType shown) const {
    return shown.getRank() == 2 && table.getRank() == 2 && table.getDimSize(1) % shown.getDimSize(1) == 0;
  }

private:
  Location loc;
  RankedTensorType table;
  Value place, sums;
};

struct CompactTables : mpt::impl::CompactTablesBase<CompactTables> {
  using CompactTablesBase::CompactTablesBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      for (auto scatter : llvm::make_early_inc_range(function.getOps<ScatterAddOp>()))
        if (isSparse(scatter))
          compact(scatter);
  }

private:
  static bool isSparse(ScatterAddOp scatter) {
    if (scatter.getAxis() != 0 || countOf(scatter.getY()) < kFewestElements)
      return false;
    int64_t rows = shapeOf(scatter.getY())[0], read = countOf(scatter.getIndices());
    if (rows >= kLeastShare * read)
      return true;
    return refuse(DEBUG_TYPE, scatter) << "not compact: expected " << kLeastShare * read << " rows and more, got "
                                       << rows;
  }

  /// Arithmetic of `value` that its readers had better do again than read: up to the first value that several read.
  static SmallVector<Operation *> repeatedFrom(Operation *op, Value value) {
    SmallVector<Operation *> chain;
    while (chain.size() < kLongestChain && op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1 &&
           llvm::count(op->getOperands(), value) == 1) {
      chain.push_back(op);
      value = op->getResult(0);
      if (!value.hasOneUse())
        break;
      op = *value.getUsers().begin();
    }
    return chain;
  }

  /// A value of the table's shape in blocks: made there, where it follows from another tensor by a cast or from a
  /// scalar.
  static Value inBlocks(GraphBuilder &b, Value value, ArrayRef<int64_t> shape) {
    Operation *op = value.getDefiningOp();
    DenseElementsAttr constant;
    if (auto cast = dyn_cast_or_null<CastOp>(op); cast && !cast.getKey())
      return b.cast(b.reshape(cast.getX(), shape), elementOf(value));
    if (auto broadcast = dyn_cast_or_null<BroadcastOp>(op); broadcast && countOf(broadcast.getX()) == 1)
      return b.broadcast(b.reshape(broadcast.getX(), {}), shape, {});
    if (matchPattern(value, m_Constant(&constant)) && constant.isSplat())
      return b.constant(constant.resizeSplat(tensorType(value).clone(shape)));
    return b.reshape(value, shape);
  }

  /// Gives `reader` a chain of its own, down from the rows of the table that it looks up.
  static Value chainFor(Operation *reader, ArrayRef<Operation *> chain, Value table, const CompactSums &sums,
                        ArrayRef<int64_t> shape) {
    OpBuilder builder(reader);
    IRMapping own;
    own.map(table, sums.tableFor(reader));
    for (Operation *op : chain) {
      GraphBuilder b(builder, op->getLoc());
      for (Value operand : op->getOperands())
        if (!own.contains(operand) && shapeOf(operand) != shape)
          own.map(operand, inBlocks(b, operand, shape));
      Value result = builder.clone(*op, own)->getResult(0);
      result.setType(tensorType(result).clone(shape));
    }
    return own.lookup(chain.back()->getResult(0));
  }

  /// Has the readers of `value`, the table, look its rows up.
  static void replace(Value value, const CompactSums &sums) {
    for (OpOperand &use : llvm::make_early_inc_range(value.getUses())) {
      Operation *user = use.getOwner();
      if (auto shown = dyn_cast<ReshapeOp>(user); shown && sums.isInBlocks(tensorType(shown.getY()))) {
        replace(shown.getY(), sums.inBlocks(shown, tensorType(shown.getY())));
        shown.erase();
        continue;
      }
      SmallVector<Operation *> chain = repeatedFrom(user, value);
      if (chain.empty()) {
        use.set(sums.tableFor(user));
        continue;
      }
      for (OpOperand &read : llvm::make_early_inc_range(chain.back()->getResult(0).getUses())) {
        auto shown = dyn_cast<ReshapeOp>(read.getOwner());
        RankedTensorType blocks = shown ? tensorType(shown.getY()) : RankedTensorType();
        if (!shown || !sums.isInBlocks(blocks)) {
          read.set(chainFor(read.getOwner(), chain, value, sums, shapeOf(value)));
          continue;
        }
        shown.replaceAllUsesWith(chainFor(shown, chain, value, sums.inBlocks(shown, blocks), blocks.getShape()));
        shown.erase();
      }
      for (Operation *op : llvm::reverse(chain))
        op->erase();
    }
  }

  void compact(ScatterAddOp scatter) {
    replace(scatter.getY(), CompactSums(scatter));
    scatter.erase();
    ++numTables;
  }
};

} // namespace
