// SPDX-License-Identifier: Apache-2.0
// How much a planned step launches and moves, against the least that its library calls allow.
#ifndef MPT_MEMORY_KERNELREPORT_H
#define MPT_MEMORY_KERNELREPORT_H

#include "mpt/Support/TensorCores.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace mpt::memory {

/// For every function: `kernels`, launches of generated kernels; `gemms`, `convolutions`, `copies`, `fills`: calls
/// of the runtime; `library_bytes`, traffic of GEMMs and convolutions; `bytes`, traffic of everything else, a buffer
/// counted once a launch that uses it, and a long row as often as it is read again; `guarded_bytes`, further reads
/// where a convolution's call leaves no sums that do (`mpt.guarded`); `minimum_bytes` and `sums_minimum_bytes`, lower
/// bounds of that (Traffic.h; 0 where they were not asked for); `host_synchronizations`, ops that a device does not do
/// by itself; `narrow_channels`, convolutions of 16 bits whose channels of a group are no multiples of 8, which Tensor
/// Cores want, with the counts that would be; `narrow_sums`, how many GEMMs of 8-bit operands each of `cores` adds up
/// in less than FP32, in how many bits, and how many products at a time; `kernel_code`, every kernel that is launched
/// on a device (KernelCode.h).
llvm::json::Object kernelReport(mlir::ModuleOp module, llvm::ArrayRef<TensorCore> cores = {});
/// The same as a table.
void printKernelReport(const llvm::json::Object &report, llvm::raw_ostream &out);

} // namespace mpt::memory

#endif // MPT_MEMORY_KERNELREPORT_H
