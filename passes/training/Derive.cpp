// SPDX-License-Identifier: Apache-2.0
// --training-derive: backward passes in place of the requests of a graph.
#include "mpt/Autodiff/Requests.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_DERIVE
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Derive : mpt::impl::DeriveBase<Derive> {
  void runOnOperation() override {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      // Functions of algorithms become parts of steps.
      if (function.isDeclaration() || hasAttr<MPTDialect::NameAttrHelper>(function))
        continue;
      auto derived = answerRequests(function, /*training=*/std::nullopt);
      if (failed(derived))
        return signalPassFailure();
      answered += derived->size();
    }
  }
};

} // namespace
