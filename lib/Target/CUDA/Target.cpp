// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as a target: its capabilities and options.
#include "Device.h"
#include "Emit.h"
#include "KernelMaker.h"

#include "mpt/Target/Kernels.h"
#include "mpt/Target/Ptx.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::target;

namespace {

/// Architectures that libraries carry code for unless the user says otherwise.
constexpr StringLiteral defaultArchs[] = {"sm_80", "sm_90", "sm_100"};

class CudaTarget : public Target {
public:
  CudaTarget() { options.archs.assign(std::begin(defaultArchs), std::end(defaultArchs)); }

  StringRef name() const override { return "cuda"; }
  StringRef runtimeLibrary() const override { return "libmpt_rt_cuda.so"; }

  ArrayRef<TargetFlag> flags() const override {
    static constexpr TargetFlag table[] = {
        {"--arch", "LIST", "architectures to carry code for (sm_80,sm_90,sm_100)"},
        {"--ptxas", "PATH",
         "assembler of machine code, or none for PTX alone (the one on the PATH, where there is one)"},
        {"--no-fused-attention", "", "keep attention's GEMMs and softmax apart"}};
    return table;
  }
  std::optional<std::string> set(StringRef flag, StringRef value) override {
    if (flag == "--arch")
      return setArchs(value);
    if (flag == "--ptxas")
      options.ptxas = value.str();
    else
      fusesAttention = false;
    return std::nullopt;
  }

  Capabilities capabilities() const override {
    Capabilities result;
    result.device = &cuda::device;
    result.fusion = KernelCapabilities::ofThreadGrids();
    // Attention that cuDNN's engines and our tiles take.
    result.calls.attention = fusesAttention;
    result.calls.attentionDepth = 128;
    // 16 bytes of 16-bit elements: columns that cuBLASLt's epilogues exchange, channels of cuDNN's fused convolutions.
    result.calls.attentionUnit = result.calls.chainedColumns = result.calls.summedChannels = 8;
    result.calls.chainedGemms = result.calls.channelSums = result.wholeRecurrences = true;
    result.calls.alphaScales = result.calls.biasThroughReshape = true;
    result.calls.everyOperandType = result.orderedSums = false;
    result.calls.float8Gemms = multipliesFloat8();
    for (StringRef arch : options.archs)
      if (std::optional<TensorCore> core = TensorCore::named(arch))
        result.tensorCores.push_back(std::move(*core));
    return result;
  }

  memory::BufferizationPolicy bufferization() const override {
    using Policy = memory::BufferizationPolicy;
    Policy policy;
    policy.alignment = cuda::device.accessBytes;
    policy.filters = Policy::Filters::ChannelsLast;
    policy.workspace = Policy::Workspace::Library;
    policy.float8 = multipliesFloat8() ? Policy::Float8::Gemms : Policy::Float8::None;
    policy.gemmResults = Policy::GemmResults::RowsOrColumns;
    // An estimate. To read and write an element of 16 bits takes as long as its products with 400 rows (an H200's 200
    // operations a byte), and a product that loads two bytes at a time takes twice as long at least.
    policy.rowsWorthAligning = 512;
    // Smaller operands stay in caches, and a launch takes longer than it would save.
    policy.bytesWorthAligning = 64 << 10;
    // Measured on an H200 (docs/results/gpu-first-run.md): products along 50,257 words run at 100 to 130 TFLOP/s, along
    // 30,522 at 190 to 250, along multiples of 8 elements at 700; a sum over rows of a matrix with odd ones at 500.
    policy.extentBytes = cuda::device.accessBytes;
    policy.workWorthRounding = int64_t(1) << 31; // 20 us at the lower rate; a launch of a copy takes 3
    policy.workOfCopiedByte = 512;
    policy.recurrences = Policy::Recurrences::Loop;
    policy.bundles = Policy::Bundles::Flat;
    return policy;
  }
  memory::KernelEmitter kernels(bool) const override { return threadGrids(cuda::device); }

  void registerDialects(DialectRegistry &registry) const override { cuda::registerPtxDialects(registry); }

  LogicalResult emit(ModuleOp module, const LibraryOptions &library) const override {
    return cuda::emitLibrary(module, library, *this, options);
  }

private:
  /// Every device that there is code for does.
  bool multipliesFloat8() const {
    return llvm::all_of(options.archs, [](StringRef arch) { return arch == "host" || cuda::numberOfArch(arch) >= 89; });
  }
  std::optional<std::string> setArchs(StringRef value) {
    options.archs.clear();
    for (StringRef arch : llvm::split(value, ',')) {
      if (arch != "host" && cuda::numberOfArch(arch).value_or(0) < 80)
        return "sm_NN from sm_80 on, or sm_90a, several separated by commas";
      options.archs.push_back(arch.str());
    }
    return std::nullopt;
  }

  cuda::CodeOptions options;
  bool fusesAttention = true;
};

} // namespace

namespace mpt::cuda {
std::unique_ptr<Target> createTarget() { return std::make_unique<CudaTarget>(); }
} // namespace mpt::cuda
