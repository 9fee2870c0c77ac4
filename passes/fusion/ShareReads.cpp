// SPDX-License-Identifier: Apache-2.0
// --fusion-share-reads: arithmetic rematerialized on either side of a sum, where both sides read its operands anyway.
#include "mpt/Fusion/SharedReads.h"
#include "passes/fusion/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_SHAREREADS
#include "passes/fusion/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct ShareReads : mpt::impl::ShareReadsBase<ShareReads> {
  using ShareReadsBase::ShareReadsBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isExternal())
        numRematerialized += shareReads(function);
  }
};

} // namespace
