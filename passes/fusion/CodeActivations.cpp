// SPDX-License-Identifier: Apache-2.0
// --fusion-code-activations: activations wait for the backward pass in 8 bits with a scale a row.
#include "mpt/Fusion/CodedActivations.h"
#include "mpt/Precision/SavedNodes.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_CODEACTIVATIONS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct CodeActivations : mpt::impl::CodeActivationsBase<CodeActivations> {
  using CodeActivationsBase::CodeActivationsBase;

  void runOnOperation() override {
    SavedNodes nodes(PrecisionSettings::of(getOperation()), all);
    if (nodes.empty())
      return;
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      CodedActivations coded(function, [&](StringRef node) { return nodes.areCoded(node); });
      CodingResult result = codeActivations(function, coded);
      numCoded += result.values;
      savedBytes += result.saves;
      if (result.values)
        setAttr<MPTDialect::CodedAttrHelper>(function,
                                             DenseI64ArrayAttr::get(&getContext(), {result.values, result.saves}));
      for (Operation &op : llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
        if (isOpTriviallyDead(&op))
          op.erase();
    }
  }
};

} // namespace
