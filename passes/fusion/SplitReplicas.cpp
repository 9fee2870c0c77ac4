// SPDX-License-Identifier: Apache-2.0
// --fusion-split-replicas: a step of replicas as functions, cut where the replicas meet.
// Matcher: collectives of dialect shard.
#include "mpt-c/abi.h"
#include "mpt-c/abi_replicas.h"
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Distribution/KeptValues.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_SPLITREPLICAS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Name of what the i-th collective exchanges, as mpt-c/abi.h has it.
std::string nameOf(Operation *collective, size_t i) {
  auto reduce = dyn_cast<shard::AllReduceOp>(collective);
  StringRef prefix = isa<shard::ReduceScatterOp>(collective)              ? MPT_NAME_SCATTER
                     : isa<shard::AllGatherOp>(collective)                ? MPT_NAME_GATHER
                     : reduce.getReduction() == shard::ReductionKind::Max ? MPT_NAME_MAX
                                                                          : MPT_NAME_SUM;
  return (prefix + Twine(i)).str();
}

/// Name of the i-th value that a replica keeps.
std::string nameOf(size_t i) { return (MPT_NAME_KEPT + Twine(i)).str(); }

/// What the i-th collective takes in, and what it results in, with the meetings before.
struct Exchange {
  Operation *op;
  std::string name;
  int64_t meeting;
};

SmallVector<Exchange> exchangesOf(func::FuncOp function) {
  dist::Meetings meetings(function);
  SmallVector<Exchange> exchanges;
  for (Operation &op : function.getBody().front())
    if (dist::isCollective(&op))
      exchanges.push_back({&op, nameOf(&op, exchanges.size()), meetings.before(&op)});
  return exchanges;
}

void eraseUnusedArguments(func::FuncOp function) {
  for (unsigned i = function.getNumArguments(); i-- > 0;)
    if (function.getArgument(i).use_empty())
      (void)function.eraseArgument(i);
}

bool isDivided(train::WriteOp write) { return dist::shardOf(write, write.getStateAttr()).has_value(); }

struct SplitReplicas : mpt::impl::SplitReplicasBase<SplitReplicas> {
  void runOnOperation() override {
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (function.isExternal() || !dist::hasCollectives(function))
        continue;
      // Functions that run once a replica: up to the last meeting to which one contributes.
      int64_t last = 0;
      for (const Exchange &exchange : exchangesOf(function))
        last = std::max(last, exchange.meeting);
      dist::Meetings meetings(function);
      for (auto write : function.getOps<train::WriteOp>())
        if (isDivided(write))
          last = std::max(last, meetings.before(write));
      const SmallVector<dist::KeptValue> kept = dist::keptValues(function, last);
      numKept += kept.size();
      before(cloneFunction(function, "replica"), 0, last == 0, kept);
      for (int64_t i = 1; i <= last; ++i)
        before(cloneFunction(function, (MPT_NAME_BETWEEN + Twine(i)).str()), i, i == last, kept);
      after(cloneFunction(function, "combine"));
      function.erase();
    }
  }

private:
  /// What one replica computes between two meetings; the last such function changes divided states.
  static void before(func::FuncOp function, int64_t meeting, bool isLast, ArrayRef<dist::KeptValue> kept) {
    const SmallVector<Operation *> ops = dist::opsOf(function);
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>()))
      if (!isLast || !isDivided(write))
        write.erase();
    SmallVector<NamedValue> contributions;
    for (const Exchange &exchange : exchangesOf(function))
      if (exchange.meeting == meeting)
        contributions.emplace_back(exchange.name, exchange.op->getOperand(0));
    takeResults(function, meeting);
    for (auto [i, value] : llvm::enumerate(kept))
      if (value.made == meeting)
        contributions.emplace_back(nameOf(i), value.in(ops));
    setResults(function, contributions);
    for (auto [i, value] : llvm::enumerate(kept))
      if (llvm::is_contained(value.taken, meeting))
        value.in(ops).replaceAllUsesWith(addArgument(function, nameOf(i), value.in(ops).getType()));
    takeSlices(function);
    eraseDeadOps(function);
    eraseUnusedArguments(function);
  }

  /// What every process computes from what they have together.
  static void after(func::FuncOp function) {
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>()))
      if (isDivided(write))
        write.erase();
    takeResults(function, std::numeric_limits<int64_t>::max());
    eraseDeadOps(function);
    eraseUnusedArguments(function);
  }

  /// Results of collectives before `meeting` are arguments.
  static void takeResults(func::FuncOp function, int64_t meeting) {
    for (const Exchange &exchange : exchangesOf(function)) {
      if (exchange.meeting >= meeting)
        continue;
      Value result = exchange.op->getResult(0);
      result.replaceAllUsesWith(addArgument(function, exchange.name, result.getType()));
      exchange.op->erase();
    }
  }

  /// A replica picks its row by its number.
  static void takeSlices(func::FuncOp function) {
    Value number;
    for (auto slice : llvm::to_vector(function.getOps<shard::AllSliceOp>())) {
      if (slice->use_empty())
        continue;
      OpBuilder builder(slice);
      GraphBuilder b(builder, slice.getLoc());
      for (BlockArgument argument : function.getArguments())
        if (!number && getArgAttr<dist::DistDialect::NumberAttrHelper>(function, argument.getArgNumber()))
          number = argument;
      if (!number) {
        number = addArgument(function, MPT_NAME_REPLICA, RankedTensorType::get({}, builder.getI64Type()));
        setArgAttr<dist::DistDialect::NumberAttrHelper>(function, function.getNumArguments() - 1,
                                                        builder.getUnitAttr());
      }
      slice.getResult().replaceAllUsesWith(b.make<GatherOp>(slice.getInput(), b.reshape(number, {1}), 0));
      slice.erase();
    }
  }
};

} // namespace
