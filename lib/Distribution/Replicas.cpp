// SPDX-License-Identifier: Apache-2.0
// The grid of replicas, and which values differ among them.
// Matcher: collectives of dialect shard, and reads of divided states.
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

void dist::makeGrid(ModuleOp module, int64_t replicas) {
  if (replicasOf(module))
    return;
  OpBuilder builder = OpBuilder::atBlockBegin(module.getBody());
  shard::GridOp::create(builder, module.getLoc(), builder.getStringAttr(kReplicas),
                        builder.getDenseI64ArrayAttr({replicas}));
}

bool dist::hasCollectives(func::FuncOp function) {
  return llvm::any_of(function.getOps(), [](Operation &op) { return isCollective(&op); });
}

bool dist::isCollective(Operation *op) {
  return isa_and_present<shard::ShardDialect>(op->getDialect()) && !isa<shard::AllSliceOp>(op);
}

std::optional<int64_t> dist::shardOf(train::StateOp state) {
  auto elements = state ? getAttr<DistDialect::ShardAttrHelper>(state) : IntegerAttr();
  return elements ? std::optional(elements.getInt()) : std::nullopt;
}

std::optional<int64_t> dist::shardOf(Operation *access, FlatSymbolRefAttr state) {
  return shardOf(SymbolTable::lookupNearestSymbolFrom<train::StateOp>(access, state));
}

Meetings::Meetings(func::FuncOp step) {
  for (Operation &op : step.getBody().front())
    if (int64_t count = before(&op) + isCollective(&op))
      for (Value result : op.getResults())
        counts[result] = count;
}

int64_t Meetings::before(Operation *op) const {
  int64_t most = 0;
  for (Value operand : op->getOperands())
    most = std::max(most, before(operand));
  return most;
}

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
        train::argumentIs(step, argument.getArgNumber(), train::Role::replica_number))
      addOwn(argument);
}

void Variance::visit(Operation &op) {
  if (isa<shard::AllReduceOp, shard::AllGatherOp>(op))
    return;
  auto read = dyn_cast<train::ReadOp>(op);
  if (isa<shard::ReduceScatterOp, shard::AllSliceOp>(op) || (read && shardOf(read, read.getStateAttr()))) {
    varying.insert(op.result_begin(), op.result_end());
    return;
  }
  if (!anyVaries(op.getOperands()))
    return;
  varying.insert(op.result_begin(), op.result_end());
  if (llvm::any_of(op.getOperands(), [&](Value operand) { return own.contains(operand); }))
    own.insert(op.result_begin(), op.result_end());
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
