// SPDX-License-Identifier: Apache-2.0
// --distribution-verify-replicas: replicas cannot come to disagree, nor wait for each other for ever.
// Matcher: collectives of dialect shard.
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
    bool fine = true;
    for (Operation &op : step.getBody().front())
      if (isa_and_nonnull<shard::ShardDialect>(op.getDialect()))
        fine &= succeeded(verifyCollective(&op, variance));
    // One message is enough: an error of one write is mostly an error of all.
    fine = fine && llvm::all_of(step.getOps<train::WriteOp>(),
                                [&](train::WriteOp write) { return succeeded(verifyWrite(write, variance)); });
    return success(fine && succeeded(verifyResults(step, variance)));
  }

  static LogicalResult verifyCollective(Operation *op, const Variance &variance) {
    if (!isa<shard::AllReduceOp, shard::ReduceScatterOp, shard::AllGatherOp, shard::AllSliceOp>(op))
      return op->emitError() << "expected shard.all_reduce, reduce_scatter, all_gather or all_slice in a step, got "
                             << op->getName();
    auto grid = op->getAttrOfType<FlatSymbolRefAttr>("grid");
    auto axes = op->getAttrOfType<DenseI16ArrayAttr>("grid_axes");
    if (!grid || grid.getValue() != kReplicas || !axes || axes.asArrayRef() != ArrayRef<shard::GridAxis>{0})
      return op->emitError() << "expected a collective over axis 0 of @" << kReplicas << ", got " << grid;
    for (StringRef name : {"scatter_axis", "gather_axis", "slice_axis"})
      if (auto axis = op->getAttrOfType<IntegerAttr>(name); axis && axis.getInt() != 0)
        return op->emitError() << "expected 0 as its " << name << ", got " << axis.getInt()
                               << ": shards are rows, one behind the other";
    bool reduces = isa<shard::AllReduceOp, shard::ReduceScatterOp>(op);
    if (reduces && !tensorType(op->getResult(0)).getElementType().isF32())
      return op->emitError() << "expected replicas to reduce in f32, got "
                             << tensorType(op->getResult(0)).getElementType();
    Value input = op->getOperand(0);
    if (isa<shard::AllSliceOp>(op))
      return variance.varies(input)
                 ? op->emitError()
                       << "expected a shard of a value that is the same on every replica, got one that varies"
                 : success();
    if (isa<shard::AllGatherOp>(op) && !variance.varies(input))
      return op->emitError() << "expected a row of the replica's own to gather, got a value that is the same on every "
                                "replica";
    return success();
  }

  static LogicalResult verifyWrite(train::WriteOp write, const Variance &variance) {
    bool divided = shardOf(write, write.getStateAttr()).has_value();
    for (Value value : write->getOperands()) {
      bool isValue = value == write.getValue();
      if (!variance.varies(value) || (isValue && divided && variance.isShard(value)))
        continue;
      if (variance.isShard(value))
        return write.emitError() << "expected a " << (isValue ? "value" : "condition")
                                 << " that is the same on every replica for state '" << write.getState()
                                 << "', got one that is computed from a replica's shard: gather it first";
      return write.emitError() << "expected a " << (isValue ? "value" : "condition") << " that is "
                               << (isValue && divided ? "computed from shards" : "the same on every replica")
                               << " for state '" << write.getState() << "', got one that depends on '"
                               << originOf(value, variance) << "' without a collective";
    }
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
