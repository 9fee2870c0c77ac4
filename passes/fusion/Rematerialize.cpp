// SPDX-License-Identifier: Apache-2.0
// --fusion-rematerialize: computes values once more in the backward pass instead of keeping them in memory until then.
#include "mpt/Fusion/Rematerialization.h"
#include "mpt/Precision/SavedNodes.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_REMATERIALIZE
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Rematerialize : mpt::impl::RematerializeBase<Rematerialize> {
  using RematerializeBase::RematerializeBase;

  void runOnOperation() override {
    SavedNodes nodes(PrecisionSettings::of(getOperation()), codeAll);
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      RematerializationGoal goal{bytes, effort, memoryBound};
      std::optional<CodedActivations> coded;
      if (!nodes.empty())
        goal.coded = &coded.emplace(function, [&](StringRef node) { return nodes.areCoded(node); });
      RematerializationResult result = rematerialize(function, goal);
      keptBytes += result.keptBytes;
      numRematerialized += result.numOps;
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
