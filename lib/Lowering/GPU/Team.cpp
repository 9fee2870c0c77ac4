// SPDX-License-Identifier: Apache-2.0
// Cooperative rows: strided visits, butterflies within warps and shared memory between them.
#include "Team.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mpt;

SmallVector<int64_t> mpt::walkOrder(ElementEmitter &e, ArrayRef<int64_t> shape, ArrayRef<int64_t> axes) {
  SmallVector<int64_t> order;
  for (const SmallVector<int64_t> &group : e.walk(shape, axes))
    llvm::append_range(order, group);
  return order;
}

Value mpt::sharedBuffer(ElementEmitter &e, ArrayRef<int64_t> shape, Type element, int64_t &bytes) {
  ImplicitLocOpBuilder &b = e.b;
  // An i1 lies as a byte.
  if (element.isInteger(1))
    element = b.getI8Type();
  auto type = MemRefType::get(shape, element, MemRefLayoutAttrInterface(), b.getI64IntegerAttr(3));
  bytes += type.getNumElements() * ceilDiv(element.getIntOrFloatBitWidth(), 8);
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  std::string name;
  for (unsigned i = 0; name.empty() || module.lookupSymbol(name); ++i)
    name = "mpt_shared_" + std::to_string(i);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    memref::GlobalOp::create(b, name, b.getStringAttr("private"), type, b.getUnitAttr(), /*constant=*/false,
                             b.getI64IntegerAttr(16));
  }
  return memref::GetGlobalOp::create(b, type, name);
}

static Value shuffled(ElementEmitter &e, Value x, int64_t distance) {
  ImplicitLocOpBuilder &b = e.b;
  Type type = x.getType();
  bool narrow = isa<IntegerType>(type) && type.getIntOrFloatBitWidth() < 32;
  if (narrow)
    x = arith::ExtSIOp::create(b, b.getI32Type(), x);
  auto constant = [&](int64_t n) -> Value { return arith::ConstantOp::create(b, b.getI32IntegerAttr(n)); };
  x = gpu::ShuffleOp::create(b, x, constant(distance), constant(e.target.warpThreads), gpu::ShuffleMode::XOR)
          .getShuffleResult();
  return narrow ? Value(arith::TruncIOp::create(b, type, x)) : x;
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

unsigned Team::widthFor(int64_t extent) const {
  unsigned result = width;
  if (extent == ragged)
    return result;
  while (extent % result != 0)
    result /= 2;
  return result;
}

/// The first position of this thread: threads of a team visit neighbouring vectors.
IndexExpr Team::own(unsigned width) {
  auto [slot, isNew] = owned.try_emplace(width, 0);
  if (isNew)
    slot->second = e.at(0, [&] {
      Value first = width > 1 ? Value(arith::MulIOp::create(e.b, member, e.indexConstant(width))) : member;
      return e.variable(first, threads * width, width);
    });
  threadVariables.insert(slot->second.terms.front().variable);
  return slot->second;
}

/// As own, limited to the first `rest` positions, and whether this thread has one of them.
std::pair<IndexExpr, Value> Team::tail(unsigned width, int64_t rest) {
  auto [slot, isNew] = tails.try_emplace({width, rest}, std::pair(IndexExpr(0), Value()));
  if (isNew)
    slot->second = e.at(0, [&] {
      Value first = e.index(own(width));
      Value inside = arith::CmpIOp::create(e.b, arith::CmpIPredicate::ult, first, e.indexConstant(rest));
      Value limited = arith::SelectOp::create(e.b, inside, first, e.indexConstant(0));
      return std::pair(e.variable(limited, rest, width), inside);
    });
  threadVariables.insert(slot->second.first.terms.front().variable);
  return slot->second;
}

bool Team::isUnrolled(int64_t extent) const {
  unsigned lanes = widthFor(extent);
  return ceilDiv(extent, threads * lanes) * lanes <= unroll;
}

void Team::forEach(int64_t extent, TeamBody body) {
  forVectors(extent, body);
  forRest(extent, body);
}

void Team::visit(const IndexExpr &position, Value inside, TeamBody body) const {
  if (beforeVisit)
    beforeVisit(position);
  body(position, inside);
}

/// Elements behind the last vector: a thread each.
void Team::forRest(int64_t extent, TeamBody body) {
  int64_t rest = extent % widthFor(extent);
  if (rest == 0)
    return;
  auto [position, inside] = tail(1, rest);
  visit(e.space.add(position, IndexExpr(extent - rest)), inside, body);
}

void Team::forVectors(int64_t extent, TeamBody body) {
  unsigned lanes = widthFor(extent);
  int64_t stride = threads * lanes, bulk = extent / lanes * lanes, whole = bulk / stride, rest = bulk % stride;
  IndexExpr first = own(lanes);
  auto last = [&] {
    if (rest == 0)
      return;
    auto [position, inside] = tail(lanes, rest);
    visit(e.space.add(position, IndexExpr(whole * stride)), inside, body);
  };
  if (isUnrolled(extent)) {
    for (int64_t k = 0; k < whole; ++k)
      visit(e.space.add(first, IndexExpr(k * stride)), Value(), body);
    return last();
  }
  e.loop(e.indexConstant(0), e.indexConstant(whole), whole, 1, {}, [&](const IndexExpr &k, ValueRange) {
    visit(e.space.add(e.space.scale(k, stride), first), Value(), body);
    return SmallVector<Value>();
  });
  last();
}

bool Team::dependsOnThread(const IndexExpr &expr) const {
  return llvm::any_of(expr.terms, [&](const IndexExpr::Term &term) {
    const IndexSpace::Variable &variable = e.space[term.variable];
    if (variable.kind == IndexSpace::Kind::Opaque || threadVariables.contains(term.variable))
      return true;
    return variable.kind != IndexSpace::Kind::Loop && dependsOnThread(variable.source);
  });
}

bool Team::isUniform(ArrayRef<IndexExpr> at) const {
  return e.space.depth(at) == 0 && llvm::none_of(at, [&](const IndexExpr &index) { return dependsOnThread(index); });
}

Value Team::isFirst() {
  return e.at(
      0, [&]() -> Value { return arith::CmpIOp::create(e.b, arith::CmpIPredicate::eq, member, e.indexConstant(0)); });
}

Value Team::opaqueMember() {
  Value number = arith::IndexCastOp::create(e.b, e.b.getI32Type(), member);
  return arith::IndexCastOp::create(e.b, e.b.getIndexType(), shuffled(e, number, 0));
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

void Team::step(ArrayRef<ReduceOp> group, ArrayRef<Accumulator> accumulators, MutableArrayRef<Value> totals,
                const IndexExpr &position, unsigned lanes, Value inside, TeamSource source) {
  MathBuilder m(e);
  for (auto [op, a, total] : llvm::zip_equal(group, accumulators, totals)) {
    Value x = source(op, position);
    if (isa<FloatType>(a.type))
      x = m.toFloat(x, a.type);
    x = e.splat(x, lanes);
    if (scalarTotals && lanes > 1)
      x = a.fold(e, x);
    // The first value is not added to a zero, which would cost as much as adding another one.
    Value sum = total ? a.combine(e, total, x) : x;
    if (inside && !total)
      total = e.splat(a.identity(e, a.type), e.width(x));
    // Scalar conditions select whole vectors.
    total = inside ? Value(arith::SelectOp::create(e.b, inside, sum, total)) : sum;
  }
}

SmallVector<Value> Team::reduceAll(ArrayRef<ReduceOp> group, ArrayRef<Accumulator> accumulators, int64_t extent,
                                   TeamSource source) {
  unsigned lanes = widthFor(extent);
  int64_t stride = threads * lanes, bulk = extent / lanes * lanes, whole = bulk / stride, rest = bulk % stride;
  SmallVector<Value> totals(group.size()), more;
  auto startFromIdentities = [&] {
    for (auto [total, a] : llvm::zip_equal(totals, accumulators))
      total = total ? total : e.splat(a.identity(e, a.type), scalarTotals ? 1 : lanes);
  };
  if (isUnrolled(extent)) {
    forVectors(extent, [&](const IndexExpr &position, Value inside) {
      step(group, accumulators, totals, position, lanes, inside, source);
    });
    startFromIdentities();
  } else {
    startFromIdentities();
    totals = e.loop(
        e.indexConstant(0), e.indexConstant(whole), whole, 1, totals, [&](const IndexExpr &k, ValueRange carried) {
          SmallVector<Value> next(carried);
          step(group, accumulators, next, e.space.add(e.space.scale(k, stride), own(lanes)), lanes, Value(), source);
          return next;
        });
    if (rest) {
      auto [position, inside] = tail(lanes, rest);
      step(group, accumulators, totals, e.space.add(position, IndexExpr(whole * stride)), lanes, inside, source);
    }
  }
  forRest(extent, [&](const IndexExpr &position, Value inside) {
    more.resize(group.size());
    step(group, accumulators, more, position, 1, inside, source);
  });
  return across(accumulators, totals, more);
}

SmallVector<Value> Team::reduceRange(ArrayRef<ReduceOp> group, ArrayRef<Accumulator> accumulators,
                                     const IndexExpr &begin, int64_t length, int64_t extent, TeamSource source) {
  unsigned lanes = widthFor(extent);
  int64_t stride = threads * lanes, turns = ceilDiv(length, stride);
  SmallVector<Value> totals;
  for (const Accumulator &a : accumulators)
    totals.push_back(e.splat(a.identity(e, a.type), lanes));
  // Turns of this thread that lie before the extent's end.
  IndexExpr start = e.space.add(begin, own(lanes));
  Value left = arith::SubIOp::create(e.b, e.indexConstant(extent + stride - 1), e.index(start));
  Value count =
      arith::MaxSIOp::create(e.b, arith::DivSIOp::create(e.b, left, e.indexConstant(stride)), e.indexConstant(0));
  count = arith::MinSIOp::create(e.b, count, e.indexConstant(turns));
  totals = e.loop(e.indexConstant(0), count, turns, 1, totals, [&](const IndexExpr &k, ValueRange carried) {
    SmallVector<Value> next(carried);
    step(group, accumulators, next, e.space.add(e.space.scale(k, stride), start), lanes, Value(), source);
    return next;
  });
  return across(accumulators, totals);
}

SmallVector<Value> Team::across(ArrayRef<Accumulator> accumulators, ArrayRef<Value> partial, ArrayRef<Value> more) {
  ImplicitLocOpBuilder &b = e.b;
  SmallVector<Value> totals;
  for (auto [i, a, value] : llvm::enumerate(accumulators, partial)) {
    Value x = e.width(value) > 1 ? a.fold(e, value) : value;
    if (!more.empty())
      x = a.combine(e, x, more[i]);
    MathBuilder m(e);
    if (isa<FloatType>(a.total))
      x = m.toFloat(x, a.total);
    // Both partners add the same two values: all threads get one result.
    for (int64_t distance = 1; distance < std::min(threads, warp); distance *= 2)
      x = a.combine(e, x, shuffled(e, x, distance));
    totals.push_back(x);
  }
  if (threads <= warp)
    return totals;
  int64_t warps = threads / warp;
  SmallVector<Value> buffers;
  Value number = arith::DivUIOp::create(b, member, e.indexConstant(warp));
  Value lane = arith::RemUIOp::create(b, member, e.indexConstant(warp));
  Value leads = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, lane, e.indexConstant(0));
  for (Value total : totals)
    buffers.push_back(sharedBuffer(e, {warps}, total.getType(), sharedBytes));
  e.guarded(leads, [&] {
    for (auto [total, buffer] : llvm::zip_equal(totals, buffers)) {
      Value stored = total.getType().isInteger(1) ? Value(arith::ExtUIOp::create(b, b.getI8Type(), total)) : total;
      memref::StoreOp::create(b, stored, buffer, number);
    }
  });
  gpu::BarrierOp::create(b);
  for (auto [a, total, buffer] : llvm::zip_equal(accumulators, totals, buffers)) {
    Type type = total.getType();
    SmallVector<Value> values;
    for (int64_t i = 0; i < warps; ++i) {
      Value value = memref::LoadOp::create(b, buffer, e.indexConstant(i));
      values.push_back(type.isInteger(1) ? Value(arith::TruncIOp::create(b, type, value)) : value);
    }
    // A tree, as within the warps.
    for (size_t n = values.size(); n > 1; n = values.size()) {
      SmallVector<Value> next;
      for (size_t i = 0; i + 1 < n; i += 2)
        next.push_back(a.combine(e, values[i], values[i + 1]));
      if (n % 2)
        next.push_back(values.back());
      values = next;
    }
    total = values.front();
  }
  return totals;
}

std::optional<SmallVector<Value>> Team::reduce(ElementEmitter &, MutableArrayRef<ReduceOp> group,
                                               ArrayRef<IndexExpr> at) {
  ReduceOp first = group.front();
  if (!isUniform(at))
    return std::nullopt;
  ArrayRef<int64_t> shape = shapeOf(first.getX());
  SmallVector<IndexExpr> from(shape.size());
  for (auto [position, axis] : llvm::enumerate(keptAxes(first)))
    from[axis] = at[position];
  SmallVector<int64_t> order = walkOrder(e, shape, first.getAxes());
  SmallVector<Accumulator> accumulators;
  for (ReduceOp member : group)
    // A row that fills the registers is kept once, as FP32.
    accumulators.push_back(scalarTotals && narrowExtreme(member)
                               ? accumulatorOf(member)
                               : gatheringAccumulator(member, /*everyElement=*/false));
  SmallVector<Value> results =
      reduceAll(group, accumulators, reducedExtent(first), [&](ReduceOp op, const IndexExpr &position) {
        e.spread(position, shape, order, from);
        return e.element(op.getX(), from);
      });
  for (auto [member, value] : llvm::zip_equal(group, results))
    value = finishReduction(e, member, value);
  return results;
}
