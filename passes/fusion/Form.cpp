// SPDX-License-Identifier: Apache-2.0
// --fusion-form: ops become kernels (lib/Fusion/Grouping.cpp says which go together).
#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Fusion/Grouping.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_FORM
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Form : mpt::impl::FormBase<Form> {
  using FormBase::FormBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        form(function);
  }

private:
  void form(func::FuncOp function) {
    KernelCapabilities kernels{sharedSums, columnOutputs, keptRows, bundles, memoryBound};
    SmallVector<Group> groups = separate ? separateOps(function) : groupOps(function, kernels);
    outlineGroups(function, groups, [&](FusionOp fusion) { count(fusion); });
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
      if (isOpTriviallyDead(&op))
        op.erase();
  }

  void count(FusionOp fusion) {
    ++numKernels;
    for (Value input : fusion.getInputs())
      bytesRead += bytesOf(input);
    for (Value output : fusion.getOutputs())
      bytesWritten += bytesOf(output);
  }
};

} // namespace
