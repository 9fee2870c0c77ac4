// SPDX-License-Identifier: Apache-2.0
// --distribution-bucket: sums over replicas, several values at a time.
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/distribution/Passes.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

namespace mpt {
#define GEN_PASS_DEF_BUCKET
#include "passes/distribution/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Bucket : mpt::impl::BucketBase<Bucket> {
  using BucketBase::BucketBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal() && dist::hasCollectives(function))
        gather(function);
  }

private:
  /// Collectives of one kind that do not wait for each other: kind, element type, synchronization points before, and
  /// whether the replicas' own work waits for them: that shall not wait for gradients, whose loss scale is off already.
  using Family = std::tuple<OperationName, Type, int64_t, int64_t>;

  void gather(func::FuncOp step) {
    dist::Meetings meetings(step);
    const llvm::DenseSet<Operation *> awaited = awaitedIn(step);
    llvm::MapVector<Family, SmallVector<Operation *>> families;
    for (Operation &op : step.getBody().front()) {
      auto reduce = dyn_cast<shard::AllReduceOp>(op);
      if (dist::isCollective(&op) && (!reduce || reduce.getReduction() == shard::ReductionKind::Sum))
        families[{op.getName(), tensorType(op.getOperand(0)).getElementType(), meetings.before(&op),
                  awaited.contains(&op)}]
            .push_back(&op);
    }
    for (auto &[family, members] : families)
      fill(members);
    // Readers of early members stand before the last member of their bucket: it moves behind it.
    (void)sortTopologically(&step.getBody().front());
  }

  /// Ops that collectives on a replica's own rows need. Clipped shards of an update are the same work on all.
  static llvm::DenseSet<Operation *> awaitedIn(func::FuncOp step) {
    const dist::Variance variance(step);
    auto isOwn = [&](Value value) { return variance.varies(value) && !variance.isShard(value); };
    llvm::DenseSet<Operation *> awaited;
    for (Operation &op : llvm::reverse(step.getBody().front()))
      for (Value operand : op.getOperands())
        if (Operation *made = operand.getDefiningOp();
            made && (awaited.contains(&op) || (dist::isCollective(&op) && isOwn(operand))))
          awaited.insert(made);
    return awaited;
  }

  void fill(ArrayRef<Operation *> all) {
    SmallVector<Operation *> members;
    int64_t held = 0, wanted = firstBytes;
    for (Operation *op : all) {
      members.push_back(op);
      int64_t elements =
          std::max(tensorType(op->getOperand(0)).getNumElements(), tensorType(op->getResult(0)).getNumElements());
      held += elements * (tensorType(op->getResult(0)).getElementTypeBitWidth() / 8);
      if (held < wanted)
        continue;
      join(members);
      members.clear();
      held = 0;
      wanted = bytes;
    }
    if (!members.empty())
      join(members);
  }

  /// One collective in the place of the last of `members`: on a vector, or on rows that lie side by side.
  void join(ArrayRef<Operation *> members) {
    ++numBuckets;
    Operation *last = members.back();
    const bool flat = isa<shard::AllReduceOp>(last);
    const int64_t axis = flat ? 0 : 1;
    OpBuilder builder(last);
    GraphBuilder b(builder, last->getLoc());
    SmallVector<Value> parts;
    for (Operation *member : members) {
      Value given = member->getOperand(0);
      parts.push_back(flat ? b.reshape(given, {tensorType(given).getNumElements()}) : given);
    }
    Value all = parts.size() == 1 ? parts.front() : b.concat(parts, axis);
    SmallVector<int64_t> shape(tensorType(all).getShape());
    if (!flat)
      shape[0] = tensorType(last->getResult(0)).getDimSize(0);
    IRMapping mapping;
    mapping.map(last->getOperand(0), all);
    Value result = builder.clone(*last, mapping)->getResult(0);
    result.setType(tensorType(result).clone(shape));
    int64_t start = 0;
    for (auto [member, input] : llvm::zip_equal(members, parts)) {
      RankedTensorType type = tensorType(member->getResult(0));
      SmallVector<int64_t> starts(shape.size(), 0), sizes(shape);
      starts[axis] = start;
      sizes[axis] = tensorType(input).getDimSize(axis);
      start += sizes[axis];
      Value part = parts.size() == 1 ? result : b.slice(result, starts, sizes);
      member->getResult(0).replaceAllUsesWith(b.reshape(part, type.getShape()));
      member->erase();
    }
  }
};

} // namespace
