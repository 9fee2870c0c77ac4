// SPDX-License-Identifier: Apache-2.0
// Ways in which targets make kernels of fusions.
#ifndef MPT_TARGET_KERNELS_H
#define MPT_TARGET_KERNELS_H

#include "mpt/Lowering/Emission/KernelTarget.h"
#include "mpt/Lowering/GPU/Device.h"
#include "mpt/Memory/Bufferize.h"

namespace mpt::target {

/// Loops over vectors of `processor`, shared out among the host's threads by ranges of the outermost dimension.
memory::KernelEmitter vectorLoops(const KernelTarget &processor);

/// Puts the functions of a kernel's launches, once they are made, into the form that the target runs.
using LaunchForm = std::function<llvm::LogicalResult(
    mlir::OpBuilder &moduleBuilder, llvm::ArrayRef<mlir::func::FuncOp> launches, llvm::StringRef name)>;
/// Grids of thread blocks on `device`, which share sums out themselves and pay for every pass over memory.
memory::KernelEmitter threadGrids(const DeviceDescription &device, LaunchForm form = {});

} // namespace mpt::target

#endif // MPT_TARGET_KERNELS_H
