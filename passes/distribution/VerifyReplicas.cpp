// SPDX-License-Identifier: Apache-2.0
// --distribution-verify-replicas: replicas cannot come to disagree, nor wait for each other for ever.
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/distribution/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_VERIFYREPLICAS
#include "passes/distribution/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;
using namespace mpt::dist;

namespace {

class VerifyReplicas : public mpt::impl::VerifyReplicasBase<VerifyReplicas> {
public:
  void runOnOperation() override {
    markAllAnalysesPreserved();
    bool fine = true;
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && hasCollectives(function))
        fine &= succeeded(verify(function));
    if (!fine)
      signalPassFailure();
  }

private:
  LogicalResult verify(func::FuncOp step) {
    if (!replicasOf(getOperation()))
      return step.emitError() << "expected a grid @" << kReplicas << " of one axis for the collectives of the step";
    Variance variance(step);
    DenseSet<Value> met; // what depends on a collective
    bool fine = true;
    for (Operation &op : step.getBody().front()) {
      if (auto reduce = dyn_cast<shard::AllReduceOp>(op)) {
        fine &= succeeded(verifyCollective(reduce, met));
      } else if (op.getDialect() && isa<shard::ShardDialect>(op.getDialect())) {
        op.emitError() << "expected shard.all_reduce alone in a step, got " << op.getName();
        fine = false;
      }
      if (isa<shard::AllReduceOp>(op) || llvm::any_of(op.getOperands(), [&](Value v) { return met.contains(v); }))
        met.insert(op.result_begin(), op.result_end());
    }
    // One message is enough: what is wrong with one write is mostly wrong with all.
    fine = fine && llvm::all_of(step.getOps<train::WriteOp>(),
                                [&](train::WriteOp write) { return succeeded(verifyWrite(write, variance)); });
    return success(fine && succeeded(verifyResults(step, variance)));
  }

  static LogicalResult verifyCollective(shard::AllReduceOp reduce, const DenseSet<Value> &met) {
    if (reduce.getGrid() != kReplicas || reduce.getGridAxes() != ArrayRef<shard::GridAxis>{0})
      return reduce.emitError() << "expected a collective over axis 0 of @" << kReplicas << ", got @"
                                << reduce.getGrid();
    if (!tensorType(reduce.getResult()).getElementType().isF32())
      return reduce.emitError() << "expected replicas to reduce in f32, got "
                                << tensorType(reduce.getResult()).getElementType();
    if (met.contains(reduce.getInput()))
      return reduce.emitError()
             << "expected a value that no other collective is part of: a step meets once, got one that "
                "waits for another";
    return success();
  }

  static LogicalResult verifyWrite(train::WriteOp write, const Variance &variance) {
    for (Value value : write->getOperands())
      if (variance.varies(value))
        return write.emitError() << "expected a " << (value == write.getValue() ? "value" : "condition")
                                 << " that is the same on every replica for state '" << write.getState()
                                 << "', got one that depends on '" << originOf(value, variance)
                                 << "' without a collective";
    return success();
  }

  static LogicalResult verifyResults(func::FuncOp step, const Variance &variance) {
    for (auto [i, value] : llvm::enumerate(step.getBody().front().getTerminator()->getOperands()))
      if (variance.varies(value)) {
        auto name = getResultAttr<MPTDialect::NameAttrHelper>(step, i);
        return step.emitError() << "expected results that are the same on every replica, got '"
                                << (name ? name.getValue() : "") << "', which depends on '" << originOf(value, variance)
                                << "': a step with replicas returns floating-point scalars; take others from evaluate";
      }
    return success();
  }
};

} // namespace
