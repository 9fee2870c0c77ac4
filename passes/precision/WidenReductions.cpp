// SPDX-License-Identifier: Apache-2.0
// precision-widen-reductions: states accumulator types.
#include "passes/precision/Passes.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Precision/Numerics.h"
#include "mpt/Precision/Settings.h"

namespace mpt {
#define GEN_PASS_DEF_WIDENREDUCTIONS
#include "passes/precision/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {
class WidenReductions : public mpt::impl::WidenReductionsBase<WidenReductions> {
public:
  void runOnOperation() override {
    Type accumulator = PrecisionSettings::of(getOperation()).accumulate;
    getOperation().walk([&](Operation *op) {
      std::optional<Accumulation> found = accumulationOf(op);
      if (!found)
        return;
      Type acc = widest({accumulator, found->in, found->stated ? found->stated.getAcc() : accumulator});
      if (found->stated && found->stated.getAcc() != acc)
        ++numWidened;
      op->setAttr(kNumericsAttr, NumericsAttr::get(&getContext(), found->in, acc, found->out));
      ++numStated;
    });
  }
};
} // namespace
