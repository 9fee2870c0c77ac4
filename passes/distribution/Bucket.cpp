// SPDX-License-Identifier: Apache-2.0
// --distribution-bucket: sums over replicas, several values at a time.
#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "passes/distribution/Passes.h"

#include "mlir/Analysis/TopologicalSortUtils.h"

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
  void gather(func::FuncOp step) {
    SmallVector<shard::AllReduceOp> members;
    int64_t held = 0, wanted = firstBytes;
    for (auto reduce : llvm::to_vector(step.getOps<shard::AllReduceOp>())) {
      if (reduce.getReduction() != shard::ReductionKind::Sum)
        continue;
      members.push_back(reduce);
      held += tensorType(reduce.getResult()).getNumElements() * static_cast<int64_t>(sizeof(float));
      if (held < wanted)
        continue;
      join(members);
      members.clear();
      held = 0;
      wanted = bytes;
    }
    if (!members.empty())
      join(members);
    // Means of early members stand before the last member of their bucket: they move behind it.
    (void)sortTopologically(&step.getBody().front());
  }

  /// One collective on a vector in the place of the last of `members`.
  void join(ArrayRef<shard::AllReduceOp> members) {
    ++numBuckets;
    shard::AllReduceOp last = members.back();
    OpBuilder builder(last);
    GraphBuilder b(builder, last.getLoc());
    SmallVector<Value> parts;
    for (shard::AllReduceOp member : members) {
      Value wide = b.cast(member.getInput(), tensorType(member.getResult()).getElementType());
      parts.push_back(b.reshape(wide, {tensorType(wide).getNumElements()}));
    }
    Value all = parts.size() == 1 ? parts.front() : b.concat(parts, 0);
    Value sums = dist::allReduce(builder, all, shard::ReductionKind::Sum);
    int64_t start = 0;
    for (shard::AllReduceOp member : members) {
      RankedTensorType type = tensorType(member.getResult());
      Value part = parts.size() == 1 ? sums : b.slice(sums, {start}, {type.getNumElements()});
      start += type.getNumElements();
      member.getResult().replaceAllUsesWith(b.reshape(part, type.getShape()));
      member->erase();
    }
  }
};

} // namespace
