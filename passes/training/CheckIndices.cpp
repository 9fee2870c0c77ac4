// SPDX-License-Identifier: Apache-2.0
// --training-check-indices: ranges of indices and labels among a function's arguments, for the runtime to check.
#include "mpt/Dialect/Attributes.h"
#include "mpt/Dialect/MPT/Indices.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_CHECKINDICES
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct CheckIndices : mpt::impl::CheckIndicesBase<CheckIndices> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        note(function);
  }

private:
  void note(func::FuncOp function) {
    Builder builder(function);
    SmallVector<SmallVector<Attribute>> noted(function.getNumArguments());
    for (const IndexDemand &demand : indexDemandsOf(function)) {
      SmallVector<int64_t> ranges;
      for (auto [low, high] : demand.legal.intervals())
        ranges.append({low, high});
      noted[demand.argument].push_back(
          rt::IndexCheckAttr::get(builder.getContext(), builder.getStringAttr(demand.node), demand.offset,
                                  builder.getDenseI64ArrayAttr(demand.shape),
                                  builder.getDenseI64ArrayAttr(demand.strides), builder.getDenseI64ArrayAttr(ranges)));
      ++checks;
    }
    for (auto [i, attributes] : llvm::enumerate(noted))
      if (!attributes.empty())
        setArgAttr<rt::RTDialect::IndicesAttrHelper>(function, i, builder.getArrayAttr(attributes));
  }
};

} // namespace
