// SPDX-License-Identifier: Apache-2.0
// --memory-bufferize: connects the rewriting to buffers with the target, which decides of layouts.
#include "mpt/Memory/Bufferize.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Target/Target.h"
#include "passes/memory/Passes.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

namespace mpt {
#define GEN_PASS_DEF_BUFFERIZE
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Bufferize : mpt::impl::BufferizeBase<Bufferize> {
  using BufferizeBase::BufferizeBase;
  explicit Bufferize(std::shared_ptr<const target::Target> given) : given(std::move(given)) {}
  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::shared_ptr<const target::Target> maker = given;
    if (!maker)
      maker = target::createTarget(target, flags, [&] { return module.emitError(); });
    if (!maker || failed(memory::bufferize(module, maker->bufferization())))
      signalPassFailure();
  }

private:
  std::shared_ptr<const target::Target> given; ///< null: the one that the options name
};

} // namespace

std::unique_ptr<Pass> mpt::createBufferize(std::shared_ptr<const target::Target> target) {
  return std::make_unique<Bufferize>(std::move(target));
}
