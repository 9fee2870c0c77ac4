// SPDX-License-Identifier: Apache-2.0
// Finding the members of a bundle, and the ops that they have in common.
#include "Bundle.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/EquivalenceClasses.h"

#include <functional>

using namespace mlir;
using namespace mpt;

namespace {

SplatElementsAttr splatOf(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  return constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
}

/// The value whose elements `op` makes or adds up.
Value spaceOf(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  return reduce ? Value(reduce.getX()) : Value(op->getResult(0));
}

using Parts = llvm::EquivalenceClasses<Operation *>;

/// The parts of a body that share no value but operands.
Parts partsOf(Block &body, bool sums) {
  Parts parts;
  for (BlockArgument argument : body.getArguments())
    if (sums && countOf(argument) > fewElements)
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
  return parts;
}

/// Whether a bundle can compute `op` for elements of `shape`, beside sums of them where there are `sums`.
bool isMember(Operation *op, ArrayRef<int64_t> shape, bool sums) {
  if (!isa<LoopLowering>(op) || op->getNumResults() != 1 || shapeOf(spaceOf(op)) != shape)
    return false;
  if (auto reduce = dyn_cast<ReduceOp>(op))
    return sums && reduce.getKind() != ReduceKind::mean && countOf(reduce.getY()) == 1;
  return isFlat(op, shape);
}

/// The members of a body that consists of parts which share no value but operands; empty where they are not alike.
SmallVector<BundleMember> membersOf(Block &body, bool sums) {
  Parts parts = partsOf(body, sums);
  llvm::MapVector<Operation *, BundleMember> members;
  for (Operation &op : body.without_terminator())
    if (!splatOf(&op))
      members[parts.getLeaderValue(&op)].ops.push_back(&op);
  Operation *yield = body.getTerminator();
  for (auto [o, value] : llvm::enumerate(yield->getOperands())) {
    if (!value.getDefiningOp() || splatOf(value.getDefiningOp()))
      return {};
    members[parts.getLeaderValue(value.getDefiningOp())].outputs.push_back(o);
  }
  SmallVector<BundleMember> result;
  for (auto &[leader, member] : members) {
    if (member.outputs.empty())
      return {};
    Value space = spaceOf(member.ops.front());
    if (!llvm::all_of(member.ops, [&](Operation *op) { return isMember(op, shapeOf(space), sums); }))
      return {};
    member.count = countOf(space);
    result.push_back(std::move(member));
  }
  return result;
}

/// Two ops of one kind, type and attributes, whatever their shapes.
bool isSameKind(Operation *a, Operation *b) {
  if (a->getName() != b->getName() || a->getNumOperands() != b->getNumOperands() ||
      elementOf(a->getResult(0)) != elementOf(b->getResult(0)))
    return false;
  auto one = dyn_cast<ReduceOp>(a);
  if (!one)
    return a->getPropertiesAsAttribute() == b->getPropertiesAsAttribute();
  auto other = cast<ReduceOp>(b); // reductions over axes of their own
  return one.getKind() == other.getKind() && one.getNumericsAttr() == other.getNumericsAttr();
}

/// Matches the values of one member with those of the first.
struct Likeness {
  /// `x` of the first member as `y` of the other.
  bool match(Value x, Value y) {
    RankedTensorType left = tensorType(x), right = tensorType(y);
    if (left.getElementType() != right.getElementType())
      return false;
    SplatElementsAttr one = splatOf(x.getDefiningOp()), other = splatOf(y.getDefiningOp());
    if (one || other)
      return one && other && one.getSplatValue<Attribute>() == other.getSplatValue<Attribute>();
    if (Value known = same.lookupOrNull(x))
      return known == y;
    auto argument = dyn_cast<BlockArgument>(x), partner = dyn_cast<BlockArgument>(y);
    bool full = left.getNumElements() == count, alsoFull = right.getNumElements() == otherCount;
    if (!argument || !partner || full != alsoFull || (!full && left != right))
      return false;
    same.map(x, y);
    from.push_back(argument.getArgNumber());
    to.push_back(partner.getArgNumber());
    return true;
  }

  int64_t count, otherCount; // elements of the members
  IRMapping same;
  SmallVector<unsigned> from, to; // numbers of the operands that match
};

/// `member` applies to its operands the ops that `first` applies to its own; fills `member.inputs` to match `first`'s.
bool isAlike(BundleMember &first, BundleMember &member, ValueRange yielded) {
  if (first.ops.size() != member.ops.size() || first.outputs.size() != member.outputs.size())
    return false;
  Likeness likeness{first.count, member.count, {}, {}, {}};
  for (auto [a, b] : llvm::zip_equal(first.ops, member.ops)) {
    if (!isSameKind(a, b))
      return false;
    for (auto [x, y] : llvm::zip_equal(a->getOperands(), b->getOperands()))
      if (!likeness.match(x, y))
        return false;
    likeness.same.map(a->getResult(0), b->getResult(0));
  }
  for (auto [p, q] : llvm::zip_equal(first.outputs, member.outputs))
    if (likeness.same.lookupOrNull(yielded[p]) != yielded[q])
      return false;
  if (first.inputs.empty())
    first.inputs = likeness.from;
  member.inputs = likeness.to;
  return first.inputs == likeness.from;
}

bool isRowMajor(MemRefType type) {
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
bool isDense(MemRefType type) {
  SmallVector<int64_t> strides;
  int64_t offset, span = 1;
  if (mlir::failed(type.getStridesAndOffset(strides, offset)))
    return false;
  for (auto [extent, stride] : llvm::zip_equal(type.getShape(), strides))
    span += (extent - 1) * stride;
  return span == type.getNumElements();
}

} // namespace

//===----------------------------------------------------------------------===//
// Members
//===----------------------------------------------------------------------===//

StringRef Bundle::compare(GpuKernelBuilder &kernel, bool sums) {
  if (members.size() < 2)
    return "expected parts that share nothing but small operands";
  for (BundleMember &member : members) {
    if (member.count <= fewElements || !isAlike(members.front(), member, kernel.yielded()))
      return "expected parts that differ in shape alone";
    // Sums of one tensor's elements take them in the order of memory.
    unsigned full = 0;
    for (unsigned i : member.inputs) {
      bool whole = kernel.inputs[i].getNumElements() == member.count;
      full += whole;
      if (!isRowMajor(kernel.inputs[i]) && !(sums && whole && isDense(kernel.inputs[i])))
        return "expected row-major inputs";
    }
    if (sums && full != 1)
      return "expected sums over one tensor each";
    for (unsigned o : member.outputs)
      if (!isRowMajor(kernel.outputs[o]))
        return "expected row-major outputs";
    longest = std::max(longest, member.count);
  }
  return "";
}

std::optional<Bundle> Bundle::find(GpuKernelBuilder &kernel, bool sums, StringRef &reason) {
  reason = "expected several outputs, and with sums one of each";
  if (kernel.outputs.size() < 2 || (sums && kernel.reductions.size() != kernel.outputs.size()))
    return std::nullopt;
  Bundle bundle;
  bundle.numInputs = kernel.inputs.size();
  bundle.members = membersOf(kernel.body(), sums);
  reason = bundle.compare(kernel, sums);
  if (!reason.empty())
    return std::nullopt;
  bundle.flatten(kernel, sums);
  return bundle;
}

//===----------------------------------------------------------------------===//
// The first member, flat
//===----------------------------------------------------------------------===//

/// `op` of the first member on `longest` elements.
void Bundle::cloneFlat(OpBuilder &inner, Operation *op, IRMapping &mapping) {
  auto flatType = [&](Type element) { return RankedTensorType::get({longest}, element); };
  if (auto reduce = dyn_cast<ReduceOp>(op)) {
    auto type = RankedTensorType::get({}, elementOf(reduce.getY()));
    mapping.map(reduce.getY(), ReduceOp::create(inner, op->getLoc(), type, mapping.lookup(reduce.getX()),
                                                reduce.getKind(), ArrayRef<int64_t>{0}, reduce.getNumericsAttr())
                                   .getY());
    return;
  }
  for (Value operand : op->getOperands())
    if (SplatElementsAttr splat = splatOf(operand.getDefiningOp()); splat && !mapping.contains(operand)) {
      RankedTensorType type = flatType(splat.getElementType());
      mapping.map(operand, ConstantOp::create(inner, op->getLoc(), type, cast<ElementsAttr>(splat.resizeSplat(type))));
    }
  Operation *copy = inner.clone(*op, mapping);
  copy->getResult(0).setType(flatType(elementOf(op->getResult(0))));
}

void Bundle::flatten(GpuKernelBuilder &kernel, bool sums) {
  Location loc = kernel.fusion.getLoc();
  BundleMember &first = members.front();
  OpBuilder inner(kernel.builder.getContext());
  OperationState state(loc, FusionOp::getOperationName());
  Block &block = state.addRegion()->emplaceBlock();
  flat = Operation::create(state);
  inner.setInsertionPointToEnd(&block);
  IRMapping mapping;
  for (unsigned input : first.inputs) {
    BlockArgument argument = kernel.body().getArgument(input);
    RankedTensorType type = tensorType(argument);
    MemRefType memory = kernel.inputs[input];
    bool full = type.getNumElements() == first.count;
    inputs.push_back(full ? MemRefType::get({longest}, memory.getElementType()) : memory);
    mapping.map(argument,
                block.addArgument(full ? RankedTensorType::get({longest}, type.getElementType()) : type, loc));
  }
  for (Operation *op : first.ops)
    cloneFlat(inner, op, mapping);
  SmallVector<Value> results;
  for (unsigned output : first.outputs) {
    outputs.push_back(MemRefType::get({sums ? 1 : longest}, kernel.outputs[output].getElementType()));
    results.push_back(mapping.lookup(kernel.yielded()[output]));
  }
  YieldOp::create(inner, loc, results);
  for (size_t k = 0; k < inputs.size() + outputs.size(); ++k) {
    int64_t least = kernel.device.accessBytes;
    for (const BundleMember &member : members)
      if (unsigned n = argument(member, k); n < kernel.alignments.size())
        least = std::min(least, kernel.alignments[n]);
    alignments.push_back(least);
  }
}

//===----------------------------------------------------------------------===//
// Blocks
//===----------------------------------------------------------------------===//

int64_t Bundle::share(int64_t span) {
  int64_t blocks = 0;
  for (BundleMember &member : members) {
    member.start = blocks;
    // Two at least: a search for single numbers becomes a table, in front of which all pointers are loaded.
    member.blocks = std::max<int64_t>(2, ceilDiv(member.count, span));
    blocks += member.blocks;
  }
  return blocks;
}

SmallVector<Value> Bundle::choose(ElementEmitter &e, Value block, ValueRange arguments, size_t first, size_t last,
                                  function_ref<int64_t(const BundleMember &)> startOf,
                                  function_ref<SmallVector<int64_t>(const BundleMember &)> numbers) {
  ImplicitLocOpBuilder &b = e.b;
  auto typeOfArgument = [&](size_t k) { return k < inputs.size() ? inputs[k] : outputs[k - inputs.size()]; };
  auto leaf = [&](const BundleMember &member) {
    SmallVector<Value> found;
    for (size_t k = first; k < last; ++k) {
      MemRefType type = typeOfArgument(k);
      Value argument = arguments[this->argument(member, k)];
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
    Value left = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, block, e.indexConstant(startOf(members[middle])));
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
