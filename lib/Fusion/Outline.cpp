// SPDX-License-Identifier: Apache-2.0
// From groups to mpt.fusion.
#include "OpKinds.h"
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

/// Clones the ops of a group, and the constants that they read, into the body of `fusion`.
void fillBody(FusionOp fusion, ArrayRef<Operation *> ops, const Boundary &boundary) {
  OpBuilder builder(fusion.getContext());
  Block &body = fusion.getBody().emplaceBlock();
  IRMapping mapping;
  for (Value input : boundary.inputs)
    mapping.map(input, body.addArgument(input.getType(), input.getLoc()));
  builder.setInsertionPointToEnd(&body);
  for (Operation *op : ops) {
    for (Value operand : op->getOperands())
      if (isSplat(operand.getDefiningOp()) && !mapping.contains(operand))
        mapping.map(operand, builder.clone(*operand.getDefiningOp())->getResult(0));
    removeAttr<MPTDialect::RecomputedAttrHelper>(builder.clone(*op, mapping));
  }
  SmallVector<Value> values;
  for (Value output : boundary.outputs)
    values.push_back(mapping.lookup(output));
  YieldOp::create(builder, fusion.getLoc(), values);
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
