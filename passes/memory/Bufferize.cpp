// SPDX-License-Identifier: Apache-2.0
// --memory-bufferize: connects the rewriting to buffers with the generator of kernels.
#include "mpt/Memory/Bufferize.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/MPT/OrderedSums.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Lowering/Emulation/Emulation.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "passes/memory/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

namespace mpt {
#define GEN_PASS_DEF_BUFFERIZE
#include "passes/memory/Passes.h.inc"
} // namespace mpt

using namespace mlir;
using namespace mpt;

namespace {

struct Bufferize : mpt::impl::BufferizeBase<Bufferize> {
  using BufferizeBase::BufferizeBase;
  void runOnOperation() override {
    KernelTarget target = KernelTarget::host();
    if (vectorBits) {
      target.vectorBits = vectorBits;
      target.fma = target.halves = vectorBits >= 256;
    }
    target.exactSums = hasOrderedSums(getOperation());
    if (kernels != "cpu" && kernels != "gpu" && kernels != "gpu-on-cpu") {
      getOperation().emitError() << "expected kernels=cpu, gpu or gpu-on-cpu, got '" << kernels << "'";
      return signalPassFailure();
    }
    bool gpu = kernels == "gpu";
    auto options = gpu ? memory::BufferizeOptions::ofGpu() : memory::BufferizeOptions();
    if (kernels != "cpu") {
      options.alignment = GpuTarget().accessBytes;
      options.wholeRecurrences = false;
    }
    options.nativeBf16 = nativeBf16;
    options.nativeFloat8 = nativeFloat8;
    auto onProcessor = [&](OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                           ArrayRef<MemRefType> outputs, StringRef name,
                           ArrayRef<int64_t>) -> FailureOr<memory::LaunchShape> {
      FailureOr<KernelInfo> info = emitKernel(builder, fusion, inputs, outputs, name, target);
      if (failed(info))
        return failure();
      SmallVector<int64_t> inPlace;
      for (auto [input, output] : info->inPlace)
        inPlace.append({input, output});
      if (!inPlace.empty())
        setAttr<MPTDialect::InPlaceAttrHelper>(info->function, builder.getDenseI64ArrayAttr(inPlace));
      return memory::LaunchShape{info->extent, info->grain};
    };
    auto onDevice = [&](OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs,
                        StringRef name, ArrayRef<int64_t> alignments) -> FailureOr<memory::LaunchShape> {
      FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, fusion, inputs, outputs, name, {}, alignments);
      if (failed(info))
        return failure();
      SmallVector<func::FuncOp> launches;
      for (GpuLaunch &launch : info->launches)
        launches.push_back(launch.function);
      if (!gpu && failed(emulateGpuKernel(builder, launches, name)))
        return failure();
      return memory::LaunchShape{1, 1, info->scratchBytes};
    };
    memory::KernelEmitter generate = onProcessor;
    if (kernels != "cpu")
      generate = onDevice;
    if (failed(memory::bufferize(getOperation(), generate, options)))
      signalPassFailure();
  }
};

} // namespace
