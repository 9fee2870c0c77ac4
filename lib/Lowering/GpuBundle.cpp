// One launch for many tensors of different sizes that are treated alike: optimizer updates of all parameters.
#include "GpuKernelBuilder.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace mpt;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

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
  int64_t count = 0;
};

/// The members of a body that consists of parts which share no value but operands; empty where they are not alike.
SmallVector<Member> membersOf(Block &body) {
  llvm::EquivalenceClasses<Operation *> parts;
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
    ArrayRef<int64_t> shape = typeOf(yield->getOperand(member.outputs.front())).getShape();
    member.count = typeOf(yield->getOperand(member.outputs.front())).getNumElements();
    for (Operation *op : member.ops) {
      auto lowering = dyn_cast<LoopLowering>(op);
      if (!lowering || isa<ReduceOp>(op) || op->getNumResults() != 1 || typeOf(op->getResult(0)).getShape() != shape)
        return {};
      for (OpOperand &use : op->getOpOperands())
        if (lowering.readsOwnIndex(use.getOperandNumber()) ? typeOf(use.get()).getShape() != shape
                                                           : typeOf(use.get()).getNumElements() > kFew)
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
        a->getPropertiesAsAttribute() != b->getPropertiesAsAttribute() ||
        typeOf(a->getResult(0)).getElementType() != typeOf(b->getResult(0)).getElementType())
      return false;
    for (auto [x, y] : llvm::zip_equal(a->getOperands(), b->getOperands())) {
      RankedTensorType left = typeOf(x), right = typeOf(y);
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

/// A tree of branches over the number of the block finds the tensor; from there on it is the pointwise schedule on flat
/// memory. False where the fusion is something else.
bool GpuKernelBuilder::bundle() {
  if (!reductions.empty() || outputs.size() < 2)
    return false;
  SmallVector<Member> members = membersOf(body());
  if (members.size() < 2)
    return false;
  for (Member &member : members)
    if (member.count <= kFew || !isAlike(members.front(), member, yielded()))
      return false;
  Member &first = members.front();
  auto dense = [&](MemRefType type) {
    SmallVector<int64_t> strides;
    int64_t offset, expected = 1;
    if (mlir::failed(type.getStridesAndOffset(strides, offset)))
      return false;
    for (int64_t d = type.getRank(); d-- > 0; expected *= type.getDimSize(d))
      if (type.getDimSize(d) > 1 && strides[d] != expected)
        return false;
    return true;
  };
  for (const Member &member : members)
    if (!llvm::all_of(member.inputs, [&](unsigned i) { return dense(inputs[i]); }) ||
        !llvm::all_of(member.outputs, [&](unsigned o) { return dense(outputs[o]); }))
      return false;

  // The same ops on one dimension as long as the largest tensor.
  int64_t longest = 0;
  for (const Member &member : members)
    longest = std::max(longest, member.count);
  OpBuilder inner(builder.getContext());
  OperationState state(fusion.getLoc(), FusionOp::getOperationName());
  Block &flat = state.addRegion()->emplaceBlock();
  OwningOpRef<Operation *> owner(Operation::create(state));
  inner.setInsertionPointToEnd(&flat);
  auto flatType = [&](Type element) { return RankedTensorType::get({longest}, element); };
  auto isFull = [&](unsigned input) { return typeOf(body().getArgument(input)).getNumElements() == first.count; };
  IRMapping mapping;
  SmallVector<MemRefType> flatInputs, flatOutputs;
  SmallVector<int64_t> flatAlignments;
  auto alignmentOf = [&](size_t n) { return n < alignments.size() ? alignments[n] : target.accessBytes; };
  auto add = [&](SmallVectorImpl<MemRefType> &types, MemRefType type, bool full, auto numberOf) {
    types.push_back(full ? MemRefType::get({longest}, type.getElementType()) : type);
    int64_t least = target.accessBytes;
    for (const Member &member : members)
      least = std::min(least, alignmentOf(numberOf(member)));
    flatAlignments.push_back(least);
  };
  for (auto [k, input] : llvm::enumerate(first.inputs)) {
    RankedTensorType type = typeOf(body().getArgument(input));
    add(flatInputs, inputs[input], isFull(input), [&, k = k](const Member &m) { return m.inputs[k]; });
    mapping.map(body().getArgument(input),
                flat.addArgument(isFull(input) ? flatType(type.getElementType()) : type, fusion.getLoc()));
  }
  for (Operation *op : first.ops) {
    for (Value operand : op->getOperands())
      if (SplatElementsAttr splat = splatOf(operand.getDefiningOp()); splat && !mapping.contains(operand))
        mapping.map(operand,
                    ConstantOp::create(inner, op->getLoc(), flatType(splat.getElementType()),
                                       cast<ElementsAttr>(splat.resizeSplat(flatType(splat.getElementType())))));
    Operation *copy = inner.clone(*op, mapping);
    copy->getResult(0).setType(flatType(typeOf(op->getResult(0)).getElementType()));
  }
  SmallVector<Value> results;
  for (auto [k, output] : llvm::enumerate(first.outputs)) {
    add(flatOutputs, outputs[output], true, [&, k = k](const Member &m) { return inputs.size() + m.outputs[k]; });
    results.push_back(mapping.lookup(yielded()[output]));
  }
  YieldOp::create(inner, fusion.getLoc(), results);
  GpuKernelBuilder part(builder, cast<FusionOp>(*owner), flatInputs, flatOutputs, name, target, flatAlignments);
  if (!part.chooseLane(part.loops)) {
    failed = true;
    return true;
  }
  SmallVector<int64_t> bytes;
  for (ArrayRef<MemRefType> types : {ArrayRef<MemRefType>(flatInputs), ArrayRef<MemRefType>(flatOutputs)})
    for (MemRefType type : types)
      if (type.getNumElements() == longest)
        bytes.push_back(ceilDiv(type.getElementTypeBitWidth(), 8));
  unsigned vector = part.vectorWidth(0, bytes);
  int64_t span = kThreads * kVectors * vector, blocks = 0;
  SmallVector<int64_t> starts;
  for (const Member &member : members) {
    starts.push_back(blocks);
    blocks += ceilDiv(member.count, span);
  }

  launch("bundle", {blocks, 1, 1}, kThreads, [&](Frame &frame) {
    ElementEmitter &e = frame.e;
    ImplicitLocOpBuilder &b = e.b;
    ValueRange arguments = frame.function.getArguments();
    SmallVector<Type> types;
    for (ArrayRef<MemRefType> list : {ArrayRef<MemRefType>(flatInputs), ArrayRef<MemRefType>(flatOutputs)})
      llvm::append_range(types, list);
    types.append(2, b.getIndexType());
    auto leaf = [&](const Member &member, int64_t start) {
      SmallVector<Value> found;
      auto pointer = [&](Value argument, MemRefType type) {
        if (argument.getType() == type)
          return found.push_back(argument);
        found.push_back(memref::ReinterpretCastOp::create(b, type, argument, 0, type.getShape(), ArrayRef<int64_t>{1}));
      };
      for (auto [k, type] : llvm::enumerate(flatInputs))
        pointer(arguments[member.inputs[k]], type);
      for (auto [k, type] : llvm::enumerate(flatOutputs))
        pointer(arguments[inputs.size() + member.outputs[k]], type);
      found.push_back(e.indexConstant(start));
      found.push_back(e.indexConstant(member.count));
      return found;
    };
    std::function<SmallVector<Value>(size_t, size_t)> choose = [&](size_t low, size_t high) -> SmallVector<Value> {
      if (high - low == 1)
        return leaf(members[low], starts[low]);
      size_t middle = (low + high) / 2;
      Value left = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, frame.block, e.indexConstant(starts[middle]));
      auto branch = scf::IfOp::create(b, types, left, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(b);
      for (bool then : {true, false}) {
        b.setInsertionPointToEnd(&branch->getRegion(then ? 0 : 1).front());
        scf::YieldOp::create(b, then ? choose(low, middle) : choose(middle, high));
      }
      return SmallVector<Value>(branch.getResults());
    };
    SmallVector<Value> chosen = choose(0, members.size());
    SmallVector<Value> buffers(ArrayRef<Value>(chosen).drop_back(2));
    for (auto [buffer, alignment] : llvm::zip_equal(buffers, flatAlignments))
      e.alignments[buffer] = alignment;
    for (auto [argument, buffer] : llvm::zip(flat.getArguments(), buffers))
      e.bind(argument, buffer);
    Value start = chosen[chosen.size() - 2], count = chosen.back();
    ValueRange written = ValueRange(buffers).drop_front(flatInputs.size());
    Value own = arith::SubIOp::create(b, frame.block, start);
    auto store = [&](const IndexExpr &at) { part.storeOutputs(e, written, {at}, /*rowLevel=*/false); };
    e.loop(e.indexConstant(0), e.indexConstant(kVectors), kVectors, 1, {}, [&](IndexExpr k, ValueRange) {
      Value turn = arith::AddIOp::create(b, arith::MulIOp::create(b, own, e.indexConstant(kVectors)), e.index(k));
      Value number = arith::AddIOp::create(b, arith::MulIOp::create(b, turn, e.indexConstant(kThreads)), frame.thread);
      Value at = arith::MulIOp::create(b, number, e.indexConstant(vector));
      Value behind = arith::AddIOp::create(b, at, e.indexConstant(vector));
      Value whole = arith::CmpIOp::create(b, arith::CmpIPredicate::ule, behind, count);
      e.guarded(whole, [&] { store(e.variable(at, longest, vector)); });
      if (vector > 1) {
        // The tensor's last elements, fewer than a vector.
        Value some = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, at, count);
        Value more = arith::CmpIOp::create(b, arith::CmpIPredicate::ugt, behind, count);
        e.guarded(arith::AndIOp::create(b, some, more), [&] {
          e.loop(at, count, longest, 1, {}, [&](IndexExpr i, ValueRange) {
            store(i);
            return SmallVector<Value>();
          });
        });
      }
      return SmallVector<Value>();
    });
  });
  SmallVector<int64_t> pairs;
  for (auto [k, argument] : llvm::enumerate(flat.getArguments())) {
    if (!isFull(first.inputs[k]) || !part.feedsAtOwnIndex(argument, /*reductionsToo=*/false))
      continue;
    for (const Member &member : members)
      for (unsigned o : member.outputs)
        if (inputs[member.inputs[k]] == outputs[o] && alignmentOf(member.inputs[k]) >= alignmentOf(inputs.size() + o))
          pairs.append({member.inputs[k], static_cast<int64_t>(inputs.size()) + o});
  }
  info.launches.front().function->setAttr(kInPlaceAttr, builder.getDenseI64ArrayAttr(pairs));
  return true;
}
