// SPDX-License-Identifier: Apache-2.0
// NVIDIA GPUs as a target: what they are capable of and the target's options.
#include "Emit.h"
#include "KernelMaker.h"

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
    result.kernels = KernelModel::ThreadGrid;
    result.fusion = KernelCapabilities::ofThreadGrids();
    result.calls.attention = fusesAttention;
    result.calls.chainedGemms = result.calls.channelSums = result.calls.recurrences = true;
    result.calls.alphaScales = result.calls.biasThroughReshape = true;
    result.calls.everyOperandType = false;
    auto multipliesFloat8 = [](StringRef arch) { return arch == "host" || cuda::numberOfArch(arch) >= 89; };
    if (llvm::all_of(options.archs, multipliesFloat8))
      for (unsigned operand : {0u, 1u})
        for (mpt_dtype type : {MPT_FLOAT8E4M3FN, MPT_FLOAT8E5M2})
          result.native.push_back({Contraction::MatMul, operand, type});
    return result;
  }

  void registerDialects(DialectRegistry &registry) const override { cuda::registerPtxDialects(registry); }

  LogicalResult emit(ModuleOp module, const LibraryOptions &library) const override {
    return cuda::emitLibrary(module, library, *this, options);
  }

private:
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
