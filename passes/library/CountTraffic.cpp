// SPDX-License-Identifier: Apache-2.0
// --library-count-traffic: how little the kernels of a function could read and write.
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Library/Traffic.h"
#include "mpt/Support/Refusal.h"
#include "passes/library/Passes.h"

#define DEBUG_TYPE "library-count-traffic"

namespace mpt {
#define GEN_PASS_DEF_COUNTTRAFFIC
#include "passes/library/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct CountTraffic : mpt::impl::CountTrafficBase<CountTraffic> {
  using CountTrafficBase::CountTrafficBase;

  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      if (function.isExternal())
        continue;
      std::optional<library::Traffic> least = library::leastTraffic(function, {sharedBytes, sectorBytes});
      if (least)
        setAttr<MPTDialect::TrafficAttrHelper>(
            function, Builder(&getContext()).getDenseI64ArrayAttr({least->minimum, least->withSums}));
      else
        (void)(refuse(DEBUG_TYPE, function) << "not counted: expected at most 20000 ops, got more");
    }
  }
};

} // namespace
