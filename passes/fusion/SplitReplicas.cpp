// SPDX-License-Identifier: Apache-2.0
// --fusion-split-replicas: a step of replicas as functions, cut where the replicas meet.
// Matcher: collectives of dialect shard.
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

/// How the runtime combines the values of all replicas.
train::Role roleOf(Operation *collective) {
  if (isa<shard::ReduceScatterOp>(collective))
    return train::Role::scatter;
  if (isa<shard::AllGatherOp>(collective))
    return train::Role::gather;
  bool isMax = cast<shard::AllReduceOp>(collective).getReduction() == shard::ReductionKind::Max;
  return isMax ? train::Role::max : train::Role::sum;
}

/// Name of the i-th value of its kind that goes from function to function.
std::string nameOf(train::Role role, size_t i) {
  return ("replica." + train::stringifyRole(role) + "." + Twine(i)).str();
}

/// The i-th collective, the role and name of its values, and the number of synchronization points before it.
struct Exchange {
  Operation *op;
  train::Role role;
  std::string name;
  int64_t meeting;
};

SmallVector<Exchange> exchangesOf(func::FuncOp function) {
  dist::Meetings meetings(function);
  SmallVector<Exchange> exchanges;
  for (Operation &op : function.getBody().front())
    if (dist::isCollective(&op))
      exchanges.push_back({&op, roleOf(&op), nameOf(roleOf(&op), exchanges.size()), meetings.before(&op)});
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
      // Functions that run once a replica: up to the last synchronization point to which one contributes.
      int64_t last = 0;
      for (const Exchange &exchange : exchangesOf(function))
        last = std::max(last, exchange.meeting);
      dist::Meetings meetings(function);
      for (auto write : function.getOps<train::WriteOp>())
        if (isDivided(write))
          last = std::max(last, meetings.before(write));
      const SmallVector<dist::KeptValue> kept = dist::keptValues(function, last);
      numKept += kept.size();
      for (int64_t i = 0; i <= last; ++i)
        before(phaseOf(function, i, i == 0 ? "replica" : "between_" + std::to_string(i)), i, i == last, kept);
      after(phaseOf(function, last + 1, "combine"));
      function.erase();
    }
  }

private:
  static func::FuncOp phaseOf(func::FuncOp function, int64_t meeting, const std::string &name) {
    func::FuncOp phase = cloneFunction(function, name);
    setAttr<dist::DistDialect::PhaseAttrHelper>(phase, Builder(function).getI64IntegerAttr(meeting + 1));
    return phase;
  }

  /// The work of one replica between two synchronization points; the last such function changes divided states.
  static void before(func::FuncOp function, int64_t meeting, bool isLast, ArrayRef<dist::KeptValue> kept) {
    const SmallVector<Operation *> ops = dist::opsOf(function);
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>()))
      if (!isLast || !isDivided(write))
        write.erase();
    SmallVector<NamedValue> contributions;
    for (const Exchange &exchange : exchangesOf(function))
      if (exchange.meeting == meeting)
        contributions.emplace_back(exchange.name, exchange.op->getOperand(0), exchange.role);
    takeResults(function, meeting);
    for (auto [i, value] : llvm::enumerate(kept))
      if (value.made == meeting)
        contributions.emplace_back(nameOf(train::Role::kept, i), value.in(ops), train::Role::kept);
    setResults(function, contributions);
    for (auto [i, value] : llvm::enumerate(kept))
      if (llvm::is_contained(value.taken, meeting))
        value.in(ops).replaceAllUsesWith(
            addArgument(function, nameOf(train::Role::kept, i), value.in(ops).getType(), train::Role::kept));
    takeSlices(function);
    eraseDeadOps(function);
    eraseUnusedArguments(function);
  }

  /// The work of every process on the values that all have.
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
      result.replaceAllUsesWith(addArgument(function, exchange.name, result.getType(), exchange.role));
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
        if (!number && train::argumentIs(function, argument.getArgNumber(), train::Role::replica_number))
          number = argument;
      if (!number)
        number = addArgument(function, "replica.number", RankedTensorType::get({}, builder.getI64Type()),
                             train::Role::replica_number);
      slice.getResult().replaceAllUsesWith(b.make<GatherOp>(slice.getInput(), b.reshape(number, {1}), 0));
      slice.erase();
    }
  }
};

} // namespace
