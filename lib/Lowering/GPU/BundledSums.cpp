// SPDX-License-Identifier: Apache-2.0
// Schedule: sums over all elements of many tensors. The first launch leaves a sum of each block in scratch, the
// second adds up the blocks' sums of a tensor.
#include "Bundle.h"
#include "Schedules.h"
#include "Team.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kThreads = Bundle::kThreads;
constexpr int64_t kTurns = 16;       ///< vectors of elements that a thread adds up
constexpr int64_t kPartialBytes = 8; ///< of scratch a block and sum

class BundledSums : public GpuSchedule {
public:
  BundledSums() : GpuSchedule("bundle") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    if (kernel.reductions.empty())
      return refuse(kernel, "expected sums");
    StringRef reason;
    bundle = Bundle::find(kernel, /*sums=*/true, reason);
    return bundle ? success() : refuse(kernel, reason);
  }
  void emit(GpuKernelBuilder &kernel) override;

private:
  using Frame = GpuKernelBuilder::Frame;
  SmallVector<Value> identities(ElementEmitter &e, int64_t lanes) const;
  SmallVector<Value> added(ElementEmitter &e, ValueRange before, const IndexExpr &at, Value condition, int64_t lanes);
  SmallVector<Value> sumVectors(Frame &frame, Value own, Value count);
  void addRest(Frame &frame, MutableArrayRef<Value> sums, Value count, Value last);
  void emitBlock(Frame &frame);
  SmallVector<Value> sumPartials(Frame &frame, Value start, Value length);
  void emitTotals(Frame &frame);
  Value partials(Frame &frame, size_t sum) const;

  std::optional<Bundle> bundle;
  SmallVector<ReduceOp> ops;
  SmallVector<Accumulator> accumulators, wide; ///< of a thread, and between blocks
  unsigned vector = 1;
  int64_t blocks = 0;
};

} // namespace

/// Scratch of sum number `sum`: block i's value at i, of which each has kPartialBytes.
Value BundledSums::partials(Frame &frame, size_t sum) const {
  Type element = accumulators[sum].total.isInteger(1) ? frame.e.b.getI8Type() : accumulators[sum].total;
  return memref::ViewOp::create(frame.e.b, MemRefType::get({blocks}, element), frame.function.getArguments().back(),
                                frame.e.indexConstant(blocks * kPartialBytes * static_cast<int64_t>(sum)),
                                ValueRange());
}

//===----------------------------------------------------------------------===//
// A block's sums
//===----------------------------------------------------------------------===//

SmallVector<Value> BundledSums::identities(ElementEmitter &e, int64_t lanes) const {
  SmallVector<Value> values;
  for (const Accumulator &a : accumulators)
    values.push_back(e.splat(a.identity(e, a.type), lanes));
  return values;
}

/// The sums `before` and the elements from `at` on, where `condition` holds.
SmallVector<Value> BundledSums::added(ElementEmitter &e, ValueRange before, const IndexExpr &at, Value condition,
                                      int64_t lanes) {
  MathBuilder m(e);
  SmallVector<Value> next;
  for (auto [op, a, sum] : llvm::zip_equal(ops, accumulators, before)) {
    Value x = e.element(op.getX(), {at});
    if (isa<FloatType>(a.type))
      x = m.toFloat(x, a.type);
    next.push_back(arith::SelectOp::create(e.b, condition, a.combine(e, sum, e.splat(x, lanes)), sum));
  }
  return next;
}

SmallVector<Value> BundledSums::sumVectors(Frame &frame, Value own, Value count) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  return e.loop(e.indexConstant(0), e.indexConstant(kTurns), kTurns, 1, identities(e, vector),
                [&](const IndexExpr &k, ValueRange carried) {
                  Value turn =
                      arith::AddIOp::create(b, arith::MulIOp::create(b, own, e.indexConstant(kTurns)), e.index(k));
                  Value number =
                      arith::AddIOp::create(b, arith::MulIOp::create(b, turn, e.indexConstant(kThreads)), frame.thread);
                  Value at = arith::MulIOp::create(b, number, e.indexConstant(vector));
                  Value behind = arith::AddIOp::create(b, at, e.indexConstant(vector));
                  Value whole = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, behind, count);
                  at = arith::SelectOp::create(b, whole, at, e.indexConstant(0));
                  return added(e, carried, e.variable(at, bundle->longest, vector), whole, vector);
                });
}

/// The tensor's last elements, fewer than a vector: one each for the first threads of its `last` block.
void BundledSums::addRest(Frame &frame, MutableArrayRef<Value> sums, Value count, Value last) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Value rest = arith::RemUIOp::create(b, count, e.indexConstant(vector));
  Value mine = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, frame.thread, rest);
  Value here = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, frame.block, last);
  mine = arith::AndIOp::create(b, mine, here);
  Value at = arith::AddIOp::create(b, arith::SubIOp::create(b, count, rest), frame.thread);
  at = arith::SelectOp::create(b, mine, at, e.indexConstant(0));
  SmallVector<Value> single = added(e, identities(e, 1), e.variable(at, bundle->longest), mine, 1);
  for (auto [a, sum, more] : llvm::zip_equal(accumulators, sums, single))
    sum = a.combine(e, a.fold(e, sum), more);
}

void BundledSums::emitBlock(Frame &frame) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  size_t read = bundle->inputs.size();
  SmallVector<Value> chosen = bundle->choose(
      e, frame.block, frame.function.getArguments(), 0, read, [](const BundleMember &m) { return m.start; },
      [](const BundleMember &m) { return SmallVector<int64_t>{m.start, m.count, m.start + m.blocks - 1}; });
  for (auto [k, argument] : llvm::enumerate(bundle->body().getArguments())) {
    e.alignments[chosen[k]] = bundle->alignments[k];
    e.bind(argument, chosen[k]);
  }
  Value start = chosen[read], count = chosen[read + 1], last = chosen[read + 2];
  Value own = arith::SubIOp::create(b, frame.block, start);
  SmallVector<Value> sums = sumVectors(frame, own, count);
  if (vector > 1)
    addRest(frame, sums, count, last);
  Team team(e, frame.thread, kThreads, 1, 0);
  SmallVector<Value> totals = team.across(accumulators, sums);
  e.guarded(team.isFirst(), [&] {
    for (auto [s, total] : llvm::enumerate(totals)) {
      if (total.getType().isInteger(1))
        total = arith::ExtUIOp::create(b, b.getI8Type(), total);
      memref::StoreOp::create(b, total, partials(frame, s), frame.block);
    }
  });
  frame.sharedBytes += team.sharedBytes;
}

//===----------------------------------------------------------------------===//
// A tensor's sums
//===----------------------------------------------------------------------===//

/// A thread's part of the `length` blocks from `start` on.
SmallVector<Value> BundledSums::sumPartials(Frame &frame, Value start, Value length) {
  ElementEmitter &e = frame.e;
  ImplicitLocOpBuilder &b = e.b;
  Value left = arith::SubIOp::create(b, arith::AddIOp::create(b, length, e.indexConstant(kThreads - 1)), frame.thread);
  Value count = arith::DivUIOp::create(b, left, e.indexConstant(kThreads));
  SmallVector<Value> sums, memory;
  for (auto [s, a] : llvm::enumerate(wide)) {
    sums.push_back(a.identity(e, a.type));
    memory.push_back(partials(frame, s));
  }
  return e.loop(e.indexConstant(0), count, blocks, 1, sums, [&](const IndexExpr &k, ValueRange carried) {
    SmallVector<Value> next;
    Value number =
        arith::AddIOp::create(b, arith::MulIOp::create(b, e.index(k), e.indexConstant(kThreads)), frame.thread);
    number = arith::AddIOp::create(b, number, start);
    for (auto [a, sum, partial] : llvm::zip_equal(wide, carried, memory)) {
      Value value = memref::LoadOp::create(b, partial, number);
      if (a.type.isInteger(1))
        value = arith::TruncIOp::create(b, b.getI1Type(), value);
      next.push_back(a.combine(e, sum, value));
    }
    return next;
  });
}

void BundledSums::emitTotals(Frame &frame) {
  ElementEmitter &e = frame.e;
  size_t read = bundle->inputs.size(), written = bundle->outputs.size();
  SmallVector<Value> chosen = bundle->choose(
      e, frame.block, frame.function.getArguments(), read, read + written,
      [&](const BundleMember &m) { return &m - bundle->members.data(); },
      [](const BundleMember &m) { return SmallVector<int64_t>{m.start, m.blocks}; });
  SmallVector<Value> sums = sumPartials(frame, chosen[written], chosen[written + 1]);
  Team team(e, frame.thread, kThreads, 1, 0);
  SmallVector<Value> totals = team.across(wide, sums);
  e.guarded(team.isFirst(), [&] {
    for (auto [op, total, buffer] : llvm::zip(ops, totals, chosen))
      e.store(finishReduction(e, op, total), buffer, {IndexExpr(0)});
  });
  frame.sharedBytes += team.sharedBytes;
}

void BundledSums::emit(GpuKernelBuilder &kernel) {
  for (Value value : bundle->body().getTerminator()->getOperands()) {
    ops.push_back(value.getDefiningOp<ReduceOp>());
    accumulators.push_back(gatheringAccumulator(ops.back(), /*everyElement=*/false));
    const Accumulator &a = accumulators.back();
    wide.push_back({a.kind, a.total, a.total, a.isWord});
  }
  SmallVector<int64_t> bytes;
  for (MemRefType type : bundle->inputs)
    if (bundle->isFull(type))
      bytes.push_back(ceilDiv(type.getElementTypeBitWidth(), 8));
  vector = kernel.vectorWidth(0, bytes);
  blocks = bundle->share(kThreads * kTurns * vector);
  kernel.info.scratchBytes = blocks * kPartialBytes * static_cast<int64_t>(ops.size());
  auto numMembers = static_cast<int64_t>(bundle->members.size());
  kernel.launch("bundle", {blocks, 1, 1}, kThreads, [&](Frame &frame) { emitBlock(frame); });
  kernel.launch("bundle-sum", {numMembers, 1, 1}, kThreads, [&](Frame &frame) { emitTotals(frame); });
}

std::unique_ptr<GpuSchedule> mpt::makeBundledSumsSchedule() { return std::make_unique<BundledSums>(); }
