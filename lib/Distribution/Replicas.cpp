// SPDX-License-Identifier: Apache-2.0
// The grid of replicas, and which values differ among them.
#include "mpt/Distribution/Replicas.h"

#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;

std::optional<int64_t> dist::parseReplicas(StringRef text) {
  int64_t count = kOneAProcess;
  if (text != "any" && (text.getAsInteger(10, count) || count < 1 || count > kMostReplicas))
    return std::nullopt;
  return count;
}

std::optional<int64_t> dist::replicasOf(ModuleOp module) {
  auto grid = module.lookupSymbol<shard::GridOp>(kReplicas);
  if (!grid || grid.getShape().size() != 1)
    return std::nullopt;
  return grid.getShape().front();
}

bool dist::hasCollectives(func::FuncOp function) { return !function.getOps<shard::AllReduceOp>().empty(); }

Value dist::allReduce(OpBuilder &builder, Value value, shard::ReductionKind kind) {
  RankedTensorType type = tensorType(value);
  return shard::AllReduceOp::create(builder, value.getLoc(), type.clone(wideType(type.getElementType())), kReplicas,
                                    ArrayRef<shard::GridAxis>{0}, value, kind);
}

std::optional<int64_t> dist::batchOf(func::FuncOp function) {
  for (Type type : function.getArgumentTypes())
    if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && tensor.getRank() > 0)
      return tensor.getDimSize(0);
  return std::nullopt;
}

Variance::Variance(func::FuncOp step) {
  enter(step);
  for (Operation &op : step.getBody().front())
    visit(op);
}

void Variance::enter(func::FuncOp step) {
  for (BlockArgument argument : step.getArguments())
    if (getArgAttr<DistDialect::SplitAttrHelper>(step, argument.getArgNumber()) ||
        getArgAttr<DistDialect::NumberAttrHelper>(step, argument.getArgNumber()))
      varying.insert(argument);
}

void Variance::visit(Operation &op) {
  if (isa<shard::AllReduceOp>(op) || !anyVaries(op.getOperands()))
    return;
  varying.insert(op.result_begin(), op.result_end());
}

StringRef dist::originOf(Value value, const Variance &variance) {
  while (Operation *op = value.getDefiningOp()) {
    auto operand = llvm::find_if(op->getOperands(), [&](Value operand) { return variance.varies(operand); });
    if (operand == op->operand_end())
      return {};
    value = *operand;
  }
  auto argument = cast<BlockArgument>(value);
  auto function = cast<func::FuncOp>(argument.getOwner()->getParentOp());
  auto name = getArgAttr<MPTDialect::NameAttrHelper>(function, argument.getArgNumber());
  return name ? name.getValue() : StringRef();
}
