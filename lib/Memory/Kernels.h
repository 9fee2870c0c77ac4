// SPDX-License-Identifier: Apache-2.0
// The kernels of a module, each declared once however often it is launched.
#ifndef MPT_MEMORY_KERNELS_H
#define MPT_MEMORY_KERNELS_H

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferize.h"

#include "llvm/ADT/DenseMap.h"

namespace mpt::memory {

/// Functions that one launch stands for: a GPU kernel may take several.
llvm::SmallVector<mlir::func::FuncOp> partsOf(rt::LaunchOp launch);

/// Declares kernels on demand and finds equal ones: same body, buffer types and alignments. A declared kernel is a
/// private function whose body is its fusion, between tensors of its buffers:
///
///     func.func private @kernel0(%a: memref<8xf32>, %b: memref<8xf32>) attributes {mpt.kernel, mpt.ops = "relu"} {
///       %x = bufferization.to_tensor %a restrict : memref<8xf32> to tensor<8xf32>
///       %y = mpt.fusion(%x) ...
///       bufferization.materialize_in_destination %y in restrict writable %b : (tensor<8xf32>, memref<8xf32>) -> ()
///       return
///     }
///
/// `alignments` are the bytes that each buffer's address is known to be a multiple of.
class KernelTable {
public:
  explicit KernelTable(mlir::ModuleOp module);
  mlir::func::FuncOp get(FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
                         llvm::ArrayRef<mlir::MemRefType> outputs, llvm::ArrayRef<int64_t> alignments);
  /// A kernel that copies one buffer to another, element by element, converting where their types differ.
  mlir::func::FuncOp getCopy(mlir::Location loc, mlir::MemRefType from, mlir::MemRefType to,
                             llvm::ArrayRef<int64_t> alignments);

private:
  struct Entry {
    mlir::func::FuncOp kernel;
    llvm::SmallVector<int64_t> alignments;
  };
  mlir::ModuleOp module;
  llvm::DenseMap<size_t, llvm::SmallVector<Entry, 1>> entries;
  unsigned count = 0;
};

/// The fusion of a kernel that is declared and not emitted yet; null for other functions.
FusionOp declaredFusion(mlir::func::FuncOp function);

} // namespace mpt::memory

#endif // MPT_MEMORY_KERNELS_H
