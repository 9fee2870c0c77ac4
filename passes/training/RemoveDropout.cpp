// SPDX-License-Identifier: Apache-2.0
// --training-remove-dropout: trains without dropout.
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Autodiff/TrainingFunctions.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "passes/training/Passes.h"

namespace mpt {
#define GEN_PASS_DEF_REMOVEDROPOUT
#include "passes/training/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct RemoveDropout : mpt::impl::RemoveDropoutBase<RemoveDropout> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    for (auto function : module.getOps<func::FuncOp>()) {
      function.walk([&](DropoutOp op) {
        op.replaceAllUsesWith(op.getX());
        op.erase();
        ++removed;
      });
      eraseDeadOps(function);
    }
    for (auto state : llvm::make_early_inc_range(module.getOps<train::StateOp>()))
      if (state.getRole() == train::Role::rng)
        dropUnused(module, state);
  }

private:
  /// Erases a generator that nothing draws from: its reads feed only its own next state.
  static void dropUnused(ModuleOp module, train::StateOp state) {
    SmallVector<train::WriteOp> writes;
    bool drawn = false;
    module.walk([&](train::WriteOp op) {
      if (op.getState() == state.getSymName())
        writes.push_back(op);
    });
    module.walk([&](train::ReadOp op) {
      if (op.getState() == state.getSymName())
        drawn |= llvm::any_of(op->getUsers(), [](Operation *user) { return user->hasAttr("stream"); });
    });
    if (drawn)
      return;
    for (train::WriteOp op : writes)
      op.erase();
    for (auto function : module.getOps<func::FuncOp>())
      eraseDeadOps(function);
    if (SymbolTable::symbolKnownUseEmpty(state, module))
      state.erase();
  }
};

} // namespace
