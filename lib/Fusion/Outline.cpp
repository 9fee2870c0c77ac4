// SPDX-License-Identifier: Apache-2.0
// From groups to mpt.fusion.
#include "OpKinds.h"
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Fusion/Grouping.h"
#include "mpt/Fusion/OpOrder.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Values that a group reads from outside, and its own that outside reads, in the order in which members name them.
struct Boundary {
  explicit Boundary(ArrayRef<Operation *> ops) : members(ops.begin(), ops.end()) {
    for (Operation *op : ops) {
      for (Value operand : op->getOperands())
        if (Operation *source = operand.getDefiningOp(); !source || (!members.contains(source) && !isSplat(source)))
          inputs.insert(operand);
      for (Value result : op->getResults())
        if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !members.contains(user); }))
          outputs.insert(result);
    }
  }

  DenseSet<Operation *> members;
  SetVector<Value> inputs, outputs;
};

/// The body of a fusion while ops are cloned into it.
class Body {
public:
  Body(FusionOp fusion, const Boundary &boundary) : builder(fusion.getContext()), boundary(boundary) {
    Block &block = fusion.getBody().emplaceBlock();
    for (Value input : boundary.inputs)
      mapping.map(input, block.addArgument(input.getType(), input.getLoc()));
    builder.setInsertionPointToEnd(&block);
  }
  /// Constants are cloned where they are read, so that kernels which differ in their places are one.
  Value valueOf(Value value) {
    if (!mapping.contains(value))
      mapping.map(value, builder.clone(*value.getDefiningOp())->getResult(0));
    return mapping.lookup(value);
  }
  void add(Operation *op) {
    if (isSplat(op))
      return;
    if (Operation *twin = isCostlyOfRows(op) ? twinOf(op) : nullptr)
      return mapping.map(op->getResult(0), mapping.lookup(twin->getResult(0)));
    for (Value operand : op->getOperands())
      valueOf(operand);
    removeAttr<MPTDialect::RecomputedAttrHelper>(builder.clone(*op, mapping));
    added.push_back(op);
  }

  OpBuilder builder;

private:
  /// An op that is there already and does as `op` does: clones of a cheap op for several readers met again.
  Operation *twinOf(Operation *op) const {
    auto same = [&](Value a, Value b) -> LogicalResult {
      auto splat = splatOf(a.getDefiningOp()), other = splatOf(b.getDefiningOp());
      return success(a == b || (splat && splat == other) ||
                     (mapping.contains(a) && mapping.lookupOrNull(a) == mapping.lookupOrNull(b)));
    };
    auto found = llvm::find_if(added, [&](Operation *known) {
      return known->getName() == op->getName() &&
             OperationEquivalence::isEquivalentTo(known, op, same, nullptr, OperationEquivalence::IgnoreLocations);
    });
    return found == added.end() ? nullptr : *found;
  }

  /// Whether `op` makes FP64 values for sums, for which a device takes its time, and no result of the fusion.
  bool isCostlyOfRows(Operation *op) const {
    Value result = op->getResult(0);
    return !isa<ReduceOp>(op) && elementOf(result).isF64() && !boundary.outputs.contains(result) &&
           llvm::any_of(boundary.members, [&](Operation *member) {
             return isa<ReduceOp>(member) && member->getResult(0).getType() == result.getType();
           });
  }

  const Boundary &boundary;
  IRMapping mapping;
  SmallVector<Operation *> added;
};

void fillBody(FusionOp fusion, ArrayRef<Operation *> ops, const Boundary &boundary) {
  Body body(fusion, boundary);
  for (Operation *op : ops)
    body.add(op);
  SmallVector<Value> values;
  for (Value output : boundary.outputs)
    values.push_back(body.valueOf(output));
  YieldOp::create(body.builder, fusion.getLoc(), values);
}

/// The fusion of a group; null where nothing reads its results.
FusionOp outlineGroup(const Group &group) {
  Boundary boundary(group.members);
  if (boundary.outputs.empty())
    return {};
  Operation *last = group.members.back();
  OpBuilder builder(last);
  SmallVector<Type> types;
  for (Value output : boundary.outputs)
    types.push_back(output.getType());
  auto fusion = FusionOp::create(builder, last->getLoc(), types, boundary.inputs.getArrayRef());
  fillBody(fusion, group.members, boundary);
  for (auto [output, result] : llvm::zip_equal(boundary.outputs, fusion.getOutputs()))
    Value(output).replaceUsesWithIf(result, [&](OpOperand &use) { return !boundary.members.contains(use.getOwner()); });
  return fusion;
}

/// Values rematerialized for the backward pass could be made long before: they are computed when they are wanted.
void sinkToFirstReader(MutableArrayRef<Operation *> fusions) {
  llvm::sort(fusions, [](Operation *a, Operation *b) { return b->isBeforeInBlock(a); });
  for (Operation *fusion : fusions) {
    Operation *first = nullptr;
    for (Operation *user : fusion->getUsers())
      if (!first || user->isBeforeInBlock(first))
        first = user;
    if (first)
      fusion->moveBefore(first);
  }
}

} // namespace

void mpt::outlineGroups(func::FuncOp function, ArrayRef<Group> groups, function_ref<void(FusionOp)> report) {
  SmallVector<Operation *> rematerialized;
  for (const Group &group : groups) {
    // Constants are part of the kernels that read them.
    if (group.members.size() == 1 && isSplat(group.members.front()))
      continue;
    FusionOp fusion = outlineGroup(group);
    if (!fusion)
      continue;
    if (llvm::any_of(group.members, [](Operation *op) { return hasAttr<MPTDialect::RecomputedAttrHelper>(op); }))
      rematerialized.push_back(fusion);
    report(fusion);
  }
  for (const Group &group : groups)
    for (Operation *op : llvm::reverse(group.members))
      if (op->use_empty())
        op->erase();
  orderByReadiness(function.getBody().front());
  sinkToFirstReader(rematerialized);
}
