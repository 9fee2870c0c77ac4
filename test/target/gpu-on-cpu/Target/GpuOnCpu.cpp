// SPDX-License-Identifier: Apache-2.0
// A device for tests: fusions and kernels are a GPU's, whose blocks and threads this processor runs in loops; memory,
// library calls and libraries are those of target cpu.
#include "mpt/Lowering/Emulation/Emulation.h"
#include "mpt/Target/Kernels.h"
#include "mpt/Target/Target.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace mpt::cpu {
std::unique_ptr<Target> createTarget();
}

namespace {

class GpuOnCpuTarget : public Target {
public:
  StringRef name() const override { return "gpu-on-cpu"; }
  StringRef runtimeLibrary() const override { return processor->runtimeLibrary(); }

  Capabilities capabilities() const override {
    Capabilities result;
    result.fusion = KernelCapabilities::ofThreadGrids();
    result.wholeRecurrences = true;
    result.calls.resultScales = true;
    return result;
  }
  memory::BufferizationPolicy bufferization() const override {
    memory::BufferizationPolicy policy;
    policy.alignment = 16;
    policy.recurrences = memory::BufferizationPolicy::Recurrences::Loop;
    policy.bundles = memory::BufferizationPolicy::Bundles::Flat;
    return policy;
  }
  memory::KernelEmitter kernels(bool) const override {
    return threadGrids([](OpBuilder &builder, ArrayRef<func::FuncOp> launches, StringRef name) -> LogicalResult {
      return emulateGpuKernel(builder, launches, name);
    });
  }
  void registerDialects(DialectRegistry &registry) const override { processor->registerDialects(registry); }
  LogicalResult emit(ModuleOp module, const LibraryOptions &options) const override {
    return processor->emit(module, options);
  }

private:
  std::unique_ptr<Target> processor = cpu::createTarget();
};

} // namespace

namespace mpt::gpuoncpu {
std::unique_ptr<Target> createTarget() { return std::make_unique<GpuOnCpuTarget>(); }
} // namespace mpt::gpuoncpu
