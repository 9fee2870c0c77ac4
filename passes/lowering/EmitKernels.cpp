// SPDX-License-Identifier: Apache-2.0
// --lowering-emit-kernels: connects kernels that are fusions with the target, which makes loops or grids of them.
#include "mpt/Dialect/MPT/OrderedSums.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Target/Target.h"
#include "passes/lowering/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mpt {
#define GEN_PASS_DEF_EMITKERNELS
#include "passes/lowering/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct EmitKernels : mpt::impl::EmitKernelsBase<EmitKernels> {
  using EmitKernelsBase::EmitKernelsBase;
  explicit EmitKernels(std::shared_ptr<const target::Target> given) : given(std::move(given)) {}
  void runOnOperation() override {
    ModuleOp module = getOperation();
    std::shared_ptr<const target::Target> maker = given;
    if (!maker)
      maker = target::createTarget(target, flags, [&] { return module.emitError(); });
    if (!maker || failed(memory::emitKernels(module, maker->kernels(hasOrderedSums(module)))))
      signalPassFailure();
  }

private:
  std::shared_ptr<const target::Target> given; ///< null: the one that the options name
};

} // namespace

std::unique_ptr<Pass> mpt::createEmitKernels(std::shared_ptr<const target::Target> target) {
  return std::make_unique<EmitKernels>(std::move(target));
}
