// SPDX-License-Identifier: Apache-2.0
// GPU kernels of the tests: their PTX is made and assembled, and they run as loops.
#ifndef MPT_TEST_LOWERING_DEVICEKERNELS_H
#define MPT_TEST_LOWERING_DEVICEKERNELS_H

#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Lowering/GPU/Schedule.h"

/// Emits `@kernel` for a GPU as a function on the host; fails when its PTX cannot be made for an architecture, does not
/// assemble, or spills.
llvm::FailureOr<mpt::KernelInfo> emitForDevice(mlir::OpBuilder &builder, mpt::FusionOp fusion,
                                               llvm::ArrayRef<mlir::MemRefType> inputs,
                                               llvm::ArrayRef<mlir::MemRefType> outputs, int64_t &scratchBytes);

/// One thread makes all points (SerialSchedule.cpp).
std::unique_ptr<mpt::GpuSchedule> makeSerialSchedule();

#endif // MPT_TEST_LOWERING_DEVICEKERNELS_H
