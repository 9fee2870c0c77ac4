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
    static constexpr TargetFlag table[] = {
        {"--mcpu", "CPU", "processor to generate code for (native)"},
        {"--mattr", "FEATURES", "features that it has or lacks besides, as +bf16,-sve"},
        {"--mtriple", "TRIPLE", "machine to generate code for, as aarch64-linux-gnu (this one)"}};
    return table;
  }
  std::optional<std::string> set(StringRef flag, StringRef value) override {
    if (flag == "--mtriple" && !isKnownTriple(value))
      return "the triple of a Linux machine, x86_64-linux-gnu or aarch64-linux-gnu";
    (flag == "--mcpu" ? processor.cpu : flag == "--mattr" ? processor.features : processor.triple) = value.str();
    return std::nullopt;
  }

  Capabilities capabilities() const override {
    Capabilities result;
    result.calls.resultScales = true;
    result.wholeRecurrences = true;
    result.calls.roundedOperands = {MPT_FLOAT16, MPT_BFLOAT16};
    return result;
  }

  memory::BufferizationPolicy bufferization() const override {
    memory::BufferizationPolicy policy;
    if (cpu::multipliesBf16(processor))
      policy.workspace = memory::BufferizationPolicy::Workspace::PlanButBf16;
    return policy;
  }
  memory::KernelEmitter kernels(bool exactSums) const override {
    KernelTarget properties = cpu::kernelTarget(processor);
    properties.exactSums = exactSums;
    return vectorLoops(properties);
  }

  void registerDialects(DialectRegistry &registry) const override { registerHostDialects(registry); }

  LogicalResult emit(ModuleOp module, const LibraryOptions &options) const override {
    return emitHostLibrary(module, options, *this, processor, "mpt_rt_");
  }

private:
  Processor processor;
};

} // namespace

namespace mpt::cpu {
std::unique_ptr<Target> createTarget() { return std::make_unique<CpuTarget>(); }
} // namespace mpt::cpu
