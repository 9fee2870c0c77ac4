// SPDX-License-Identifier: Apache-2.0
// The generators of kernels, as phase kernels calls them.
#include "mpt/Target/Kernels.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Lowering/GPU/Kernel.h"

using namespace mlir;
using namespace mpt;
using memory::LaunchShape;

memory::KernelEmitter mpt::target::vectorLoops(const KernelTarget &processor) {
  return [processor](OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs,
                     StringRef name, ArrayRef<int64_t>) -> FailureOr<LaunchShape> {
    FailureOr<KernelInfo> info = emitKernel(builder, fusion, inputs, outputs, name, processor);
    if (failed(info))
      return failure();
    SmallVector<int64_t> inPlace;
    for (auto [input, output] : info->inPlace)
      inPlace.append({input, output});
    if (!inPlace.empty())
      setAttr<MPTDialect::InPlaceAttrHelper>(info->function, builder.getDenseI64ArrayAttr(inPlace));
    return LaunchShape{info->extent, info->grain};
  };
}

memory::KernelEmitter mpt::target::threadGrids(const DeviceDescription &device, LaunchForm form) {
  return [&device, form = std::move(form)](OpBuilder &builder, FusionOp fusion, ArrayRef<MemRefType> inputs,
                                           ArrayRef<MemRefType> outputs, StringRef name,
                                           ArrayRef<int64_t> alignments) -> FailureOr<LaunchShape> {
    FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, fusion, inputs, outputs, name, device, alignments);
    if (failed(info))
      return failure();
    auto launches = llvm::map_to_vector(info->launches, [](const GpuLaunch &launch) { return launch.function; });
    if (form && failed(form(builder, launches, name)))
      return failure();
    return LaunchShape{1, 1, info->scratchBytes};
  };
}
