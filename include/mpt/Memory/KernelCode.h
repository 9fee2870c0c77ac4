// SPDX-License-Identifier: Apache-2.0
// An assembler's figures of the kernels that a step launches: a part of the report of kernels.
#ifndef MPT_MEMORY_KERNELCODE_H
#define MPT_MEMORY_KERNELCODE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <optional>
#include <string>
#include <vector>

namespace mpt::memory {

/// A kernel's machine code for one architecture.
struct AssembledKernel {
  std::string kernel, arch;
  int64_t registers = 0;                     ///< of a thread
  int64_t sharedBytes = 0, spilledBytes = 0; ///< of a block; stores and loads of a thread's registers
  /// On the device that stands for the architecture; absent where none does.
  struct Places {
    std::string device;
    int64_t blocks = 0; ///< that share a multiprocessor
    double waves = 0;   ///< of the grid
    double full = 0;    ///< share of the places that work, over all waves
  };
  std::optional<Places> places;
};

struct KernelCode {
  std::vector<AssembledKernel> kernels;
  std::string missing; ///< why there is no machine code; empty where there is some
};

/// Kernels that `function` launches on a device, in the order of their first launches: `kernel`, `launches` (loops with
/// all their passes), `bytes` of all these launches, `schedule`, `operations`, `blocks` and `threads` of a block.
/// `archs` is null until addKernelCode() fills it.
llvm::json::Array launchedKernels(mlir::func::FuncOp function);

/// Adds to each kernel of a report (KernelReport.h) its `archs`, and to each function with kernels why they have none
/// (`kernel_code_missing`, else null).
void addKernelCode(llvm::json::Object &report, const KernelCode &code);

/// A line for every kernel and architecture; one with dashes, and the reason below, for kernels without code.
void printKernelCode(llvm::StringRef function, const llvm::json::Object &report, llvm::raw_ostream &out);

} // namespace mpt::memory

#endif // MPT_MEMORY_KERNELCODE_H
