// SPDX-License-Identifier: Apache-2.0
// The compiler's half of a small target: any processor of the host's family, FP32 arithmetic alone, one thread.
#include "Target/HostLibrary.h"
#include "mpt/Target/Kernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using namespace mpt::target;

namespace {

/// Refuses types that the target has no arithmetic for, at the node.
struct CheckTypes : PassWrapper<CheckTypes, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(CheckTypes)
  StringRef getArgument() const override { return "toy-check-types"; }
  void runOnOperation() override {
    WalkResult walked = getOperation().walk([](Operation *op) {
      for (Type type : op->getResultTypes())
        if (auto element = dyn_cast<FloatType>(getElementTypeOrSelf(type)); element && !element.isF32()) {
          op->emitError() << "expected f32, the one type that target 'toy' computes in, got " << element
                          << "; compile with --policy=fp32";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      signalPassFailure();
  }
};

class ToyTarget : public Target {
public:
  StringRef name() const override { return "toy"; }
  StringRef runtimeLibrary() const override { return "libmpt_rt_toy.so"; }
  ArrayRef<TargetFlag> flags() const override {
    static constexpr TargetFlag table[] = {{"--toy-vector-bits", "BITS", "width of the vectors in kernels (128)"}};
    return table;
  }
  std::optional<std::string> set(StringRef, StringRef value) override {
    if (value.getAsInteger(10, vectorBits) || (vectorBits != 128 && vectorBits != 256))
      return "128 or 256";
    return std::nullopt;
  }
  Capabilities capabilities() const override { return {}; }
  mpt::memory::KernelEmitter kernels(bool exactSums) const override {
    return vectorLoops({.vectorBits = vectorBits, .fma = false, .halves = false, .exactSums = exactSums});
  }
  void registerDialects(DialectRegistry &registry) const override { registerHostDialects(registry); }
  void addPasses(StringRef phase, OpPassManager &passes) const override {
    if (phase == "precision")
      passes.addPass(std::make_unique<CheckTypes>());
  }
  LogicalResult emit(ModuleOp module, const LibraryOptions &options) const override {
    return emitHostLibrary(module, options, *this, Processor{"", "generic", ""}, "mpt_toy_");
  }

private:
  unsigned vectorBits = 128;
};

} // namespace

namespace mpt::toy {
std::unique_ptr<Target> createTarget() { return std::make_unique<ToyTarget>(); }
} // namespace mpt::toy
