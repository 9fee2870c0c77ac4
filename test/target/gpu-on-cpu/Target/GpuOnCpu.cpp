// SPDX-License-Identifier: Apache-2.0
// A device for tests: fusions and kernels are a GPU's, whose blocks and threads this processor runs in loops; memory,
// library calls and libraries are target cpu's.
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

/// Numbers of no device in particular.
constexpr DeviceModel models[] = {{"small", "small", 96, 128 << 10}, {"large", "large", 144, 256 << 10}};
constexpr DeviceDescription device = {
    .models = models,
    .multiprocessors = 128,
    .warpThreads = 32,
    .accessBytes = 16,
    .sectorBytes = 32,
    .rowThreads = 256,
    .sharedBytes = 32 << 10,
    .largestSharedBytes = 128 << 10,
    .residentBlocks = 32,
    .residentThreads = 2048,
    .registers = 65536,
    .registerUnit = 256,
    .keptSharedBytes = 1 << 10,
};

class GpuOnCpuTarget : public Target {
public:
  StringRef name() const override { return "gpu-on-cpu"; }
  StringRef runtimeLibrary() const override { return processor->runtimeLibrary(); }

  Capabilities capabilities() const override {
    Capabilities result;
    result.device = &device;
    result.fusion = KernelCapabilities::ofThreadGrids();
    result.wholeRecurrences = true;
    result.calls.resultScales = true;
    return result;
  }
  memory::BufferizationPolicy bufferization() const override {
    memory::BufferizationPolicy policy;
    policy.alignment = device.accessBytes;
    policy.recurrences = memory::BufferizationPolicy::Recurrences::Loop;
    policy.bundles = memory::BufferizationPolicy::Bundles::Flat;
    return policy;
  }
  memory::KernelEmitter kernels(bool) const override {
    return threadGrids(device,
                       [](OpBuilder &builder, ArrayRef<func::FuncOp> launches, StringRef name) -> LogicalResult {
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
