// SPDX-License-Identifier: Apache-2.0
// --fusion-split-replicas: a step of replicas as two functions, before and after the replicas meet.
#include "mpt-c/types.h"
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_SPLITREPLICAS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

/// Name of what the i-th collective reduces, as mpt-c/abi.h has it.
std::string nameOf(shard::AllReduceOp reduce, size_t i) {
  StringRef prefix = reduce.getReduction() == shard::ReductionKind::Max ? MPT_NAME_MAX : MPT_NAME_SUM;
  return (prefix + Twine(i)).str();
}

void eraseUnusedArguments(func::FuncOp function) {
  for (unsigned i = function.getNumArguments(); i-- > 0;)
    if (function.getArgument(i).use_empty())
      (void)function.eraseArgument(i);
}

struct SplitReplicas : mpt::impl::SplitReplicasBase<SplitReplicas> {
  void runOnOperation() override {
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (function.isExternal() || !dist::hasCollectives(function))
        continue;
      before(cloneFunction(function, "replica"));
      after(cloneFunction(function, "combine"));
      function.erase();
    }
  }

private:
  /// What one replica computes for the others; it changes no state.
  static void before(func::FuncOp function) {
    for (auto write : llvm::make_early_inc_range(function.getOps<train::WriteOp>()))
      write.erase();
    SmallVector<NamedValue> contributions;
    for (auto [i, reduce] : llvm::enumerate(function.getOps<shard::AllReduceOp>()))
      contributions.emplace_back(nameOf(reduce, i), reduce.getInput());
    setResults(function, contributions);
    eraseDeadOps(function);
    eraseUnusedArguments(function);
  }

  /// What every process computes from what they have together.
  static void after(func::FuncOp function) {
    for (auto [i, reduce] : llvm::enumerate(llvm::to_vector(function.getOps<shard::AllReduceOp>()))) {
      reduce.getResult().replaceAllUsesWith(addArgument(function, nameOf(reduce, i), tensorType(reduce.getResult())));
      reduce.erase();
    }
    eraseDeadOps(function);
    eraseUnusedArguments(function);
  }
};

} // namespace
