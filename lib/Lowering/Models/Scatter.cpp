// SPDX-License-Identifier: Apache-2.0
// Scattering ops: their common form and its kernel.
#include "mpt/Lowering/Models/Scatter.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Models/Models.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;

static std::optional<ScatterForm> formOf(Operation *operation) {
  ScatterForm form;
  return llvm::TypeSwitch<Operation *, std::optional<ScatterForm>>(operation)
      .Case([&](ScatterAddOp op) {
        int64_t axis = op.getAxis(), rank = rankOf(op.getIndices());
        form.updates = op.getUpdates();
        form.byRows = true;
        for (int64_t i = 0, n = rankOf(op.getY()); i < n; ++i)
          if (i != axis)
            form.shared.push_back({i, i < axis ? i : i + rank - 1});
        form.target = [=](ElementEmitter &e, ArrayRef<IndexExpr> at, MutableArrayRef<IndexExpr> result) mutable {
          result[axis] =
              indirectIndex(e, op.getIndices(), at.slice(axis, rank), tensorType(op.getY()).getDimSize(axis));
        };
        return form;
      })
      .Case([&](ScatterElementsOp op) {
        int64_t axis = op.getAxis();
        form.data = op.getData();
        form.updates = op.getUpdates();
        form.kind = op.getKind();
        for (int64_t i = 0, n = rankOf(op.getY()); i < n; ++i)
          if (i != axis && tensorType(op.getUpdates()).getDimSize(i) == tensorType(op.getY()).getDimSize(i))
            form.shared.push_back({i, i});
        form.target = [=](ElementEmitter &e, ArrayRef<IndexExpr> at, MutableArrayRef<IndexExpr> result) mutable {
          for (int64_t i = 0, n = at.size(); i < n; ++i)
            result[i] = at[i];
          result[axis] = indirectIndex(e, op.getIndices(), at, tensorType(op.getY()).getDimSize(axis));
        };
        return form;
      })
      .Case([&](ScatterNDOp op) {
        int64_t batch = op.getBatchDims(), lead = rankOf(op.getIndices()) - 1;
        int64_t count = shapeOf(op.getIndices()).back();
        form.data = op.getData();
        form.updates = op.getUpdates();
        form.kind = op.getKind();
        form.byRows = batch == 0;
        for (int64_t i = 0; i < batch; ++i)
          form.shared.push_back({i, i});
        for (int64_t i = batch + count, n = rankOf(op.getY()); i < n; ++i)
          form.shared.push_back({i, i - count - batch + lead});
        form.target = [=](ElementEmitter &e, ArrayRef<IndexExpr> at, MutableArrayRef<IndexExpr> result) mutable {
          SmallVector<IndexExpr> tuple(at.take_front(lead));
          tuple.push_back(0);
          for (int64_t i = 0; i < count; ++i) {
            tuple.back() = IndexExpr(i);
            result[batch + i] = indirectIndex(e, op.getIndices(), tuple, tensorType(op.getY()).getDimSize(batch + i));
          }
        };
        return form;
      })
      .Default([](Operation *) { return std::nullopt; });
}

std::optional<ScatterForm> mpt::scatterForm(FusionOp fusion) {
  Operation *yield = fusion.getBody().front().getTerminator();
  Operation *op = yield->getNumOperands() == 1 ? yield->getOperand(0).getDefiningOp() : nullptr;
  return op ? formOf(op) : std::nullopt;
}

LaneUnits mpt::scatterUnits(const ScatterForm &form, Value result, int64_t chunk) {
  if (form.shared.empty())
    return LaneUnits(1, 1, 1);
  int64_t rows = 1;
  for (auto [dim, update] : ArrayRef(form.shared).drop_back())
    rows *= tensorType(result).getDimSize(dim);
  return LaneUnits(rows, tensorType(result).getDimSize(form.shared.back().first), chunk);
}

Value mpt::combineUpdates(ElementEmitter &e, const ScatterForm &form, Value old, Value update) {
  ImplicitLocOpBuilder &b = e.b;
  Type element = elementOf(form.updates);
  bool real = isa<FloatType>(element);
  // As signed numbers, true is smaller than false, and unsigned 64-bit numbers from 2^63 on than 0.
  bool isUnsigned = element.isInteger(1) || element.isUnsignedInteger(64);
  if (isUnsigned && form.kind == ScatterKind::min)
    return arith::MinUIOp::create(b, old, update);
  if (isUnsigned && form.kind == ScatterKind::max)
    return arith::MaxUIOp::create(b, old, update);
  switch (form.kind) {
  case ScatterKind::assign:
    return update;
  case ScatterKind::add:
    return real ? Value(arith::AddFOp::create(b, old, update)) : Value(arith::AddIOp::create(b, old, update));
  case ScatterKind::mul:
    return real ? Value(arith::MulFOp::create(b, old, update)) : Value(arith::MulIOp::create(b, old, update));
  case ScatterKind::min:
    return real ? Value(arith::MinimumFOp::create(b, old, update)) : Value(arith::MinSIOp::create(b, old, update));
  case ScatterKind::max:
    return real ? Value(arith::MaximumFOp::create(b, old, update)) : Value(arith::MaxSIOp::create(b, old, update));
  }
  llvm_unreachable("unknown combination");
}

void mpt::emitScatter(ElementEmitter &e, const ScatterForm &form, Value result, Value buffer, Value begin, Value end,
                      const LaneUnits &units) {
  ArrayRef<int64_t> shape = shapeOf(result), updates = shapeOf(form.updates);
  Type type = elementOf(result);
  SmallVector<IndexExpr> at(shape.size()), from(updates.size());
  SmallVector<int64_t> others, otherUpdates;
  for (int64_t i = 0, n = shape.size(); i < n; ++i)
    if (llvm::none_of(form.shared, [&](auto pair) { return pair.first == i; }))
      others.push_back(i);
  for (int64_t i = 0, n = updates.size(); i < n; ++i)
    if (llvm::none_of(form.shared, [&](auto pair) { return pair.second == i; }))
      otherUpdates.push_back(i);

  auto walk = [&](ArrayRef<int64_t> extents, ArrayRef<int64_t> dims, MutableArrayRef<IndexExpr> index, auto body) {
    int64_t count = 1;
    for (int64_t dim : dims)
      count *= extents[dim];
    e.loop(e.indexConstant(0), e.indexConstant(count), count, 1, {}, [&](const IndexExpr &i, ValueRange) {
      e.spread(i, extents, dims, index);
      body();
      return SmallVector<Value>();
    });
  };
  units.walk(e, begin, end, [&](const IndexExpr &row, LaneUnits::Lanes eachLane) {
    SmallVector<int64_t> rowDims, rowUpdateDims;
    if (!form.shared.empty())
      for (auto [dim, update] : ArrayRef(form.shared).drop_back()) {
        rowDims.push_back(dim);
        rowUpdateDims.push_back(update);
      }
    e.spread(row, shape, rowDims, at);
    for (auto [dim, update] : llvm::zip_equal(rowDims, rowUpdateDims))
      from[update] = at[dim];
    auto lanes = [&](auto body) {
      eachLane([&](const IndexExpr &lane) {
        if (!form.shared.empty()) {
          at[form.shared.back().first] = lane;
          from[form.shared.back().second] = lane;
        }
        body();
      });
    };
    walk(shape, others, at, [&] {
      lanes([&] {
        Value start = form.data ? e.element(form.data, at) : e.constant(computeType(type), 0);
        e.store(e.splat(start, e.laneWidth(at)), buffer, at);
      });
    });
    walk(updates, otherUpdates, from, [&] {
      SmallVector<IndexExpr> place(at);
      lanes([&] {
        place = at;
        form.target(e, from, place);
        Value update = e.element(form.updates, from), old = e.load(buffer, place);
        Value both[] = {old, update};
        e.unify(both);
        e.store(e.round(combineUpdates(e, form, both[0], both[1]), type), buffer, place);
      });
    });
  });
}

namespace {
/// Scatters write where their indices say, not where a loop over the result stands.
template <typename Op> struct ScatterModel : LoopLowering::ExternalModel<ScatterModel<Op>, Op> {
  bool isCheap(Operation *) const { return false; }
  bool standsAlone(Operation *) const { return true; }
  Value emitElement(Operation *op, ElementEmitter &e, unsigned, ArrayRef<IndexExpr>) const {
    return e.fail(op, "expected a fusion of this op alone, got one that uses its result",
                  getElementTypeOrSelf(op->getResult(0)));
  }
};
} // namespace

void mpt::attachScatterModels(MLIRContext *context) {
  ScatterAddOp::attachInterface<ScatterModel<ScatterAddOp>>(*context);
  ScatterElementsOp::attachInterface<ScatterModel<ScatterElementsOp>>(*context);
  ScatterNDOp::attachInterface<ScatterModel<ScatterNDOp>>(*context);
}
