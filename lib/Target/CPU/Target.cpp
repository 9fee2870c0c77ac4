// SPDX-License-Identifier: Apache-2.0
// The CPU as a target: its capabilities and options.
#include "../HostLibrary.h"
#include "Processor.h"

#include "mpt/Target/Kernels.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

class CpuTarget : public Target {
public:
  StringRef name() const override { return "cpu"; }
  StringRef runtimeLibrary() const override { return "libmpt_rt.so"; }

  ArrayRef<TargetFlag> flags() const override {
    static constexpr TargetFlag table[] = {{"--mcpu", "CPU", "processor to generate code for (native)"}};
    return table;
  }
  std::optional<std::string> set(StringRef, StringRef value) override {
    mcpu = value.str();
    return std::nullopt;
  }

  Capabilities capabilities() const override {
    Capabilities result;
    result.calls.resultScales = true;
    result.wholeRecurrences = true;
    // BF16 operands that are multiplied as they are have to be in memory.
    result.calls.roundedOperands = {MPT_FLOAT16};
    if (!multipliesBf16())
      result.calls.roundedOperands.push_back(MPT_BFLOAT16);
    return result;
  }

  memory::BufferizationPolicy bufferization() const override {
    memory::BufferizationPolicy policy;
    if (multipliesBf16())
      policy.workspace = memory::BufferizationPolicy::Workspace::PlanButBf16;
    return policy;
  }
  memory::KernelEmitter kernels(bool exactSums) const override {
    KernelTarget processor = cpu::kernelTarget(mcpu);
    processor.exactSums = exactSums;
    return vectorLoops(processor);
  }

  void registerDialects(DialectRegistry &registry) const override { registerHostDialects(registry); }

  LogicalResult emit(ModuleOp module, const LibraryOptions &options) const override {
    return emitHostLibrary(module, options, *this, mcpu, "mpt_rt_");
  }

private:
  bool multipliesBf16() const { return cpu::hasFeature(mcpu, "avx512bf16"); }

  std::string mcpu = "native"; ///< as LLVM's -mcpu names it
};

} // namespace

namespace mpt::cpu {
std::unique_ptr<Target> createTarget() { return std::make_unique<CpuTarget>(); }
} // namespace mpt::cpu
