// SPDX-License-Identifier: Apache-2.0
// One launch for many tensors of different sizes that are treated alike: optimizer updates of all parameters.
#include "KernelBuilder.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/MathFunctions.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace mpt;

namespace {

constexpr int64_t kFew = 4;       ///< elements of operands that every element reads
constexpr int64_t kVectors = 4;   ///< vectors of elements that a thread makes
constexpr int64_t kThreads = 256; ///< of a block

SplatElementsAttr splatOf(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  return constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
}

/// The ops of one tensor, and its operands and results in the order in which the ops name them.
struct Member {
  SmallVector<Operation *> ops;
  SmallVector<unsigned> inputs, outputs;
  int64_t count = 0, start = 0, blocks = 0; ///< elements; number of the first block and how many there are
};

/// The value whose elements `op` makes or adds up.
Value spaceOf(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce ? Value(reduce.getX()) : Value(op->getResult(0));
}

/// The members of a body that consists of parts which share no value but operands; empty where they are not alike.
SmallVector<Member> membersOf(Block &body, bool sums) {
  llvm::EquivalenceClasses<Operation *> parts;
  if (sums)
    for (BlockArgument argument : body.getArguments())
      if (countOf(argument) > kFew)
        for (Operation *user : argument.getUsers())
          parts.unionSets(*argument.getUsers().begin(), user);
  for (Operation &op : body.without_terminator()) {
    if (splatOf(&op))
      continue;
    parts.insert(&op);
    for (Value operand : op.getOperands())
      if (Operation *source = operand.getDefiningOp(); source && !splatOf(source))
        parts.unionSets(&op, source);
  }
  llvm::MapVector<Operation *, Member> members;
  for (Operation &op : body.without_terminator())
    if (!splatOf(&op))
      members[parts.getLeaderValue(&op)].ops.push_back(&op);
  Operation *yield = body.getTerminator();
  for (auto [o, value] : llvm::enumerate(yield->getOperands())) {
    if (!value.getDefiningOp() || splatOf(value.getDefiningOp()))
      return {};
    members[parts.getLeaderValue(value.getDefiningOp())].outputs.push_back(o);
  }
  SmallVector<Member> result;
  for (auto &[leader, member] : members) {
    if (member.outputs.empty())
      return {};
    ArrayRef<int64_t> shape = shapeOf(spaceOf(member.ops.front()));
    member.count = countOf(spaceOf(member.ops.front()));
    for (Operation *op : member.ops) {
      auto lowering = dyn_cast<LoopLowering>(op);
      if (!lowering || op->getNumResults() != 1 || shapeOf(spaceOf(op)) != shape)
        return {};
      if (auto reduce = dyn_cast<ReduceOp>(op)) {
        if (!sums || reduce.getKind() == ReduceKind::mean || countOf(reduce.getY()) != 1)
          return {};
        continue;
      }
      for (OpOperand &use : op->getOpOperands())
        if (lowering.readsOwnIndex(use.getOperandNumber()) ? shapeOf(use.get()) != shape : countOf(use.get()) > kFew)
          return {};
    }
    result.push_back(std::move(member));
  }
  return result;
}

/// `member` does to its operands what `first` does to its own; fills `member.inputs` to match `first`'s.
bool isAlike(Member &first, Member &member, ValueRange yielded) {
  if (first.ops.size() != member.ops.size() || first.outputs.size() != member.outputs.size())
    return false;
  IRMapping same;
  SmallVector<unsigned> from, to;
  for (auto [a, b] : llvm::zip_equal(first.ops, member.ops)) {
    if (a->getName() != b->getName() || a->getNumOperands() != b->getNumOperands() ||
        (!isa<ReduceOp>(a) && a->getPropertiesAsAttribute() != b->getPropertiesAsAttribute()) ||
        elementOf(a->getResult(0)) != elementOf(b->getResult(0)))
      return false;
    if (auto one = dyn_cast<ReduceOp>(a))
      if (auto other = cast<ReduceOp>(b);
          one.getKind() != other.getKind() || one.getNumericsAttr() != other.getNumericsAttr())
        return false;
    for (auto [x, y] : llvm::zip_equal(a->getOperands(), b->getOperands())) {
      RankedTensorType left = tensorType(x), right = tensorType(y);
      if (left.getElementType() != right.getElementType())
        return false;
      SplatElementsAttr one = splatOf(x.getDefiningOp()), other = splatOf(y.getDefiningOp());
      if (bool(one) != bool(other) || (one && one.getSplatValue<Attribute>() != other.getSplatValue<Attribute>()))
        return false;
      if (one)
        continue;
      if (Value known = same.lookupOrNull(x)) {
        if (known != y)
          return false;
        continue;
      }
      auto argument = dyn_cast<BlockArgument>(x), partner = dyn_cast<BlockArgument>(y);
      bool full = left.getNumElements() == first.count, alsoFull = right.getNumElements() == member.count;
      if (!argument || !partner || full != alsoFull || (!full && left != right))
        return false;
      same.map(x, y);
      from.push_back(argument.getArgNumber());
      to.push_back(partner.getArgNumber());
    }
    same.map(a->getResult(0), b->getResult(0));
  }
  for (auto [p, q] : llvm::zip_equal(first.outputs, member.outputs))
    if (same.lookupOrNull(yielded[p]) != yielded[q])
      return false;
  if (first.inputs.empty())
    first.inputs = from;
  member.inputs = to;
  return first.inputs == from;
}

} // namespace

/// What both kinds of bundles need: the members, and what the first of them does on one dimension as long as the
/// longest.
struct mpt::BundlePlan {
  SmallVector<Member> members;
  OwningOpRef<Operation *> flat;
  SmallVector<MemRefType> inputs, outputs; ///< of `flat`
  SmallVector<int64_t> alignments;
  int64_t longest = 0;

  Block &body() { return flat->getRegion(0).front(); }
  bool isFull(MemRefType type) const { return type.getNumElements() == longest; }
  unsigned argument(const Member &member, size_t k, size_t numInputs) const {
    return k < inputs.size() ? member.inputs[k] : numInputs + member.outputs[k - inputs.size()];
  }
  /// Gives each member its blocks of `span` elements. Returns their number.
  int64_t share(int64_t span) {
    int64_t blocks = 0;
    for (Member &member : members) {
      member.start = blocks;
      // Two at least: a search for single numbers becomes a table, in front of which all pointers are loaded.
      member.blocks = std::max<int64_t>(2, ceilDiv(member.count, span));
      blocks += member.blocks;
    }
    return blocks;
  }
  /// A tree of branches over `block`: the memory of arguments [first, last) as `flat` wants it, then `numbers(member)`.
  /// `startOf` says where a member's blocks begin.
  SmallVector<Value> choose(ElementEmitter &e, Value block, ValueRange arguments, size_t numInputs, size_t first,
                            size_t last, function_ref<int64_t(const Member &)> startOf,
                            function_ref<SmallVector<int64_t>(const Member &)> numbers) {
    ImplicitLocOpBuilder &b = e.b;
    auto typeOfArgument = [&](size_t k) { return k < inputs.size() ? inputs[k] : outputs[k - inputs.size()]; };
    auto leaf = [&](const Member &member) {
      SmallVector<Value> found;
      for (size_t k = first; k < last; ++k) {
        MemRefType type = typeOfArgument(k);
        Value argument = arguments[this->argument(member, k, numInputs)];
        if (argument.getType() != type)
          argument = memref::ReinterpretCastOp::create(b, type, argument, 0, type.getShape(), ArrayRef<int64_t>{1});
        found.push_back(argument);
      }
      for (int64_t number : numbers(member))
        found.push_back(e.indexConstant(number));
      return found;
    };
    SmallVector<Type> types;
    for (size_t k = first; k < last; ++k)
      types.push_back(typeOfArgument(k));
    types.append(numbers(members.front()).size(), b.getIndexType());
    std::function<SmallVector<Value>(size_t, size_t)> search = [&](size_t low, size_t high) -> SmallVector<Value> {
      if (high - low == 1)
        return leaf(members[low]);
      size_t middle = (low + high) / 2;
      Value left =
          arith::CmpIOp::create(b, arith::CmpIPredicate::ult, block, e.indexConstant(startOf(members[middle])));
      auto branch = scf::IfOp::create(b, types, left, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      for (bool then : {true, false}) {
        b.setInsertionPointToEnd(&branch->getRegion(then ? 0 : 1).front());
        scf::YieldOp::create(b, then ? search(low, middle) : search(middle, high));
      }
      return SmallVector<Value>(branch.getResults());
    };
    return search(0, members.size());
  }
};

static bool isRowMajor(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset, expected = 1;
  if (mlir::failed(type.getStridesAndOffset(strides, offset)))
    return false;
  for (int64_t d = type.getRank(); d-- > 0; expected *= type.getDimSize(d))
    if (type.getDimSize(d) > 1 && strides[d] != expected)
      return false;
  return true;
}

/// Each element stands for itself alone, whatever its place: all orders of dimensions will do.
static bool isDense(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset, span = 1;
  if (mlir::failed(type.getStridesAndOffset(strides, offset)))
    return false;
  for (auto [extent, stride] : llvm::zip_equal(type.getShape(), strides))
    span += (extent - 1) * stride;
  return span == type.getNumElements();
}

/// Many tensors of different sizes that are treated alike. False where the fusion is something else.
bool GpuKernelBuilder::bundle() {
  bool sums = !reductions.empty();
  if (outputs.size() < 2 || (sums && reductions.size() != outputs.size()))
    return false;
  BundlePlan plan;
  plan.members = membersOf(body(), sums);
  if (plan.members.size() < 2)
    return false;
  Member &first = plan.members.front();
  for (Member &member : plan.members) {
    if (member.count <= kFew || !isAlike(first, member, yielded()))
      return false;
    // Sums of one tensor's elements take them in the order of memory.
    unsigned full = 0;
    for (unsigned i : member.inputs) {
      bool whole = inputs[i].getNumElements() == member.count;
      full += whole;
      if (!isRowMajor(inputs[i]) && !(sums && whole && isDense(inputs[i])))
        return false;
    }
    if (sums && full != 1)
      return false;
    for (unsigned o : member.outputs)
      if (!isRowMajor(outputs[o]))
        return false;
    plan.longest = std::max(plan.longest, member.count);
  }

  OpBuilder inner(builder.getContext());
  OperationState state(fusion.getLoc(), FusionOp::getOperationName());
  Block &flat = state.addRegion()->emplaceBlock();
  plan.flat = Operation::create(state);
  inner.setInsertionPointToEnd(&flat);
  auto flatType = [&](Type element) { return RankedTensorType::get({plan.longest}, element); };
  IRMapping mapping;
  for (unsigned input : first.inputs) {
    RankedTensorType type = tensorType(body().getArgument(input));
    bool full = type.getNumElements() == first.count;
    plan.inputs.push_back(full ? MemRefType::get({plan.longest}, inputs[input].getElementType()) : inputs[input]);
    mapping.map(body().getArgument(input),
                flat.addArgument(full ? flatType(type.getElementType()) : type, fusion.getLoc()));
  }
  for (Operation *op : first.ops) {
    if (auto reduce = dyn_cast<ReduceOp>(op)) {
      auto type = RankedTensorType::get({}, elementOf(reduce.getY()));
      mapping.map(reduce.getY(), ReduceOp::create(inner, op->getLoc(), type, mapping.lookup(reduce.getX()),
                                                  reduce.getKind(), ArrayRef<int64_t>{0}, reduce.getNumericsAttr())
                                     .getY());
      continue;
    }
    for (Value operand : op->getOperands())
      if (SplatElementsAttr splat = splatOf(operand.getDefiningOp()); splat && !mapping.contains(operand)) {
        RankedTensorType type = flatType(splat.getElementType());
        mapping.map(operand,
                    ConstantOp::create(inner, op->getLoc(), type, cast<ElementsAttr>(splat.resizeSplat(type))));
      }
    Operation *copy = inner.clone(*op, mapping);
    copy->getResult(0).setType(flatType(elementOf(op->getResult(0))));
  }
  SmallVector<Value> results;
  for (unsigned output : first.outputs) {
    plan.outputs.push_back(MemRefType::get({sums ? 1 : plan.longest}, outputs[output].getElementType()));
    results.push_back(mapping.lookup(yielded()[output]));
  }
  YieldOp::create(inner, fusion.getLoc(), results);
  for (size_t k = 0; k < plan.inputs.size() + plan.outputs.size(); ++k) {
    int64_t least = target.accessBytes;
    for (const Member &member : plan.members)
      if (unsigned n = plan.argument(member, k, inputs.size()); n < alignments.size())
        least = std::min(least, alignments[n]);
    plan.alignments.push_back(least);
  }
  sums ? bundleSums(plan) : bundleElements(plan);
  return true;
}

/// From the choice of the tensor on this is the pointwise schedule on flat memory.
void GpuKernelBuilder::bundleElements(BundlePlan &plan) {
  GpuKernelBuilder part(builder, cast<FusionOp>(*plan.flat), plan.inputs, plan.outputs, name, target, plan.alignments);
  if (!part.chooseLane(part.loops)) {
    failed = true;
    return;
  }
  SmallVector<int64_t> bytes;
  for (MemRefType type : llvm::concat<MemRefType>(plan.inputs, plan.outputs))
    if (plan.isFull(type))
      bytes.push_back(ceilDiv(type.getElementTypeBitWidth(), 8));
  unsigned vector = part.vectorWidth(0, bytes);
  int64_t blocks = plan.share(kThreads * kVectors * vector);
  size_t all = plan.inputs.size() + plan.outputs.size();
  launch("bundle", {blocks, 1, 1}, kThreads, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    SmallVector<Value> chosen = plan.choose(
        e, frame.block, frame.function.getArguments(), inputs.size(), 0, all, [](const Member &m) { return m.start; },
        [](const Member &m) { return SmallVector<int64_t>{m.start, m.count}; });
    SmallVector<Value> buffers(ArrayRef<Value>(chosen).take_front(all));
    for (auto [buffer, alignment] : llvm::zip_equal(buffers, plan.alignments))
      e.alignments[buffer] = alignment;
    for (auto [argument, buffer] : llvm::zip(plan.body().getArguments(), buffers))
      e.bind(argument, buffer);
    Value start = chosen[all], count = chosen[all + 1];
    ValueRange written = ValueRange(buffers).drop_front(plan.inputs.size());
    Value own = arith::SubIOp::create(b, frame.block, start);
    auto store = [&](const IndexExpr &at) { part.storeOutputs(e, written, {at}, /*rowLevel=*/false); };
    e.loop(e.indexConstant(0), e.indexConstant(kVectors), kVectors, 1, {}, [&](IndexExpr k, ValueRange) {
      Value turn = arith::AddIOp::create(b, arith::MulIOp::create(b, own, e.indexConstant(kVectors)), e.index(k));
      Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, turn, e.indexConstant(kThreads)), frame.thread);
      Value at = arith::MulIOp::create(b, number, e.indexConstant(vector));
      Value behind = arith::AddIOp::create(b, at, e.indexConstant(vector));
      Value whole = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, behind, count);
      e.guarded(whole, [&] { store(e.variable(at, plan.longest, vector)); });
      if (vector > 1) {
        // The tensor's last elements, fewer than a vector.
        Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, at, count);
        Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, behind, count);
        e.guarded(arith::AndIOp::create(b, some, more), [&] {
          e.loop(at, count, plan.longest, 1, {}, [&](IndexExpr i, ValueRange) {
            store(i);
            return SmallVector<Value>();
          });
        });
      }
      return SmallVector<Value>();
    });
  });
  SmallVector<int64_t> pairs;
  for (auto [k, argument] : llvm::enumerate(plan.body().getArguments())) {
    if (!plan.isFull(plan.inputs[k]) || !part.feedsAtOwnIndex(argument, /*reductionsToo=*/false))
      continue;
    auto alignmentOf = [&](size_t n) { return n < alignments.size() ? alignments[n] : target.accessBytes; };
    for (const Member &member : plan.members)
      for (unsigned o : member.outputs)
        if (inputs[member.inputs[k]] == outputs[o] && alignmentOf(member.inputs[k]) >= alignmentOf(inputs.size() + o))
          pairs.append({member.inputs[k], static_cast<int64_t>(inputs.size()) + o});
  }
  setAttr<MPTDialect::InPlaceAttrHelper>(info.launches.front().function, builder.getDenseI64ArrayAttr(pairs));
}

/// One value a tensor and sum. The first launch leaves one a block in scratch, the second adds a tensor's up.
void GpuKernelBuilder::bundleSums(BundlePlan &plan) {
  constexpr int64_t turns = 16;
  SmallVector<ReduceOp> ops;
  SmallVector<Accumulator> accumulators, wide;
  for (Value value : plan.body().getTerminator()->getOperands()) {
    ops.push_back(value.getDefiningOp<ReduceOp>());
    accumulators.push_back(gatheringAccumulator(ops.back(), /*everyElement=*/false));
    wide.push_back(gatheringAccumulator(ops.back(), /*everyElement=*/true));
  }
  SmallVector<int64_t> bytes;
  for (MemRefType type : plan.inputs)
    if (plan.isFull(type))
      bytes.push_back(ceilDiv(type.getElementTypeBitWidth(), 8));
  unsigned vector = vectorWidth(0, bytes);
  int64_t blocks = plan.share(kThreads * turns * vector);
  constexpr int64_t partialBytes = 8;
  info.scratchBytes = blocks * partialBytes * static_cast<int64_t>(ops.size());
  // Block i's value of sum s, as the first of `partialBytes`.
  auto partials = [&](Frame &frame, size_t s) -> Value {
    Type element = accumulators[s].total.isInteger(1) ? frame.e.b.getI8Type() : accumulators[s].total;
    return memref::ViewOp::create(frame.e.b, MemRefType::get({blocks}, element), frame.function.getArguments().back(),
                                  frame.e.indexConstant(blocks * partialBytes * static_cast<int64_t>(s)), ValueRange());
  };
  launch("bundle", {blocks, 1, 1}, kThreads, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    MathBuilder m(e);
    size_t read = plan.inputs.size();
    SmallVector<Value> chosen = plan.choose(
        e, frame.block, frame.function.getArguments(), inputs.size(), 0, read, [](const Member &m) { return m.start; },
        [](const Member &m) { return SmallVector<int64_t>{m.start, m.count, m.start + m.blocks - 1}; });
    for (auto [k, argument] : llvm::enumerate(plan.body().getArguments())) {
      e.alignments[chosen[k]] = plan.alignments[k];
      e.bind(argument, chosen[k]);
    }
    Value start = chosen[read], count = chosen[read + 1], last = chosen[read + 2];
    Value own = arith::SubIOp::create(b, frame.block, start);
    auto added = [&](ValueRange before, const IndexExpr &at, Value condition, int64_t lanes) {
      SmallVector<Value> next;
      for (auto [op, a, sum] : llvm::zip_equal(ops, accumulators, before)) {
        Value x = e.element(op.getX(), {at});
        if (isa<FloatType>(a.type))
          x = m.toFloat(x, a.type);
        next.push_back(arith::SelectOp::create(b, condition, a.combine(e, sum, e.splat(x, lanes)), sum));
      }
      return next;
    };
    auto identities = [&](int64_t lanes) {
      SmallVector<Value> values;
      for (const Accumulator &a : accumulators)
        values.push_back(e.splat(a.identity(e, a.type), lanes));
      return values;
    };
    SmallVector<Value> sums = e.loop(
        e.indexConstant(0), e.indexConstant(turns), turns, 1, identities(vector), [&](IndexExpr k, ValueRange carried) {
          Value turn = arith::AddIOp::create(b, arith::MulIOp::create(b, own, e.indexConstant(turns)), e.index(k));
          Value number =
              arith::AddIOp::create(b, arith::MulIOp::create(b, turn, e.indexConstant(kThreads)), frame.thread);
          Value at = arith::MulIOp::create(b, number, e.indexConstant(vector));
          Value behind = arith::AddIOp::create(b, at, e.indexConstant(vector));
          Value whole = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, behind, count);
          at = arith::SelectOp::create(b, whole, at, e.indexConstant(0));
          return added(carried, e.variable(at, plan.longest, vector), whole, vector);
        });
    if (vector > 1) {
      // The tensor's last elements, fewer than a vector: one each for the first threads of its last block.
      Value rest = arith::RemUIOp::create(b, count, e.indexConstant(vector));
      Value mine = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, frame.thread, rest);
      Value here = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, frame.block, last);
      mine = arith::AndIOp::create(b, mine, here);
      Value at = arith::AddIOp::create(b, arith::SubIOp::create(b, count, rest), frame.thread);
      at = arith::SelectOp::create(b, mine, at, e.indexConstant(0));
      SmallVector<Value> single = added(identities(1), e.variable(at, plan.longest), mine, 1);
      for (auto [a, sum, more] : llvm::zip_equal(accumulators, sums, single))
        sum = a.combine(e, a.fold(e, sum), more);
    }
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
  });
  launch("bundle-sum", {static_cast<int64_t>(plan.members.size()), 1, 1}, kThreads, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    size_t read = plan.inputs.size(), written = plan.outputs.size();
    SmallVector<Value> chosen = plan.choose(
        e, frame.block, frame.function.getArguments(), inputs.size(), read, read + written,
        [&](const Member &m) { return &m - plan.members.data(); },
        [](const Member &m) { return SmallVector<int64_t>{m.start, m.blocks}; });
    Value start = chosen[written], length = chosen[written + 1];
    Value left =
        arith::SubIOp::create(b, arith::AddIOp::create(b, length, e.indexConstant(kThreads - 1)), frame.thread);
    Value count = arith::DivUIOp::create(b, left, e.indexConstant(kThreads));
    SmallVector<Value> sums, memory;
    for (auto [s, a] : llvm::enumerate(wide)) {
      sums.push_back(a.identity(e, a.type));
      memory.push_back(partials(frame, s));
    }
    sums = e.loop(e.indexConstant(0), count, blocks, 1, sums, [&](IndexExpr k, ValueRange carried) {
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
    Team team(e, frame.thread, kThreads, 1, 0);
    SmallVector<Value> totals = team.across(wide, sums);
    e.guarded(team.isFirst(), [&] {
      for (auto [op, total, buffer] : llvm::zip(ops, totals, chosen))
        e.store(finishReduction(e, op, total), buffer, {IndexExpr(0)});
    });
    frame.sharedBytes += team.sharedBytes;
  });
}
