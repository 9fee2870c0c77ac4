// SPDX-License-Identifier: Apache-2.0
// --memory-plan: lays out the arena of every function.
#include "mpt/Memory/Plan.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferize.h"
#include "passes/memory/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_PLAN
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;

namespace {

struct Plan : mpt::impl::PlanBase<Plan> {
  using PlanBase::PlanBase;
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>())
      if (!function.isDeclaration() && !mpt::hasAttr<mpt::MPTDialect::KernelAttrHelper>(function))
        mpt::memory::plan(function, inPlace);
  }
};

} // namespace
