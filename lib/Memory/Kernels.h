// SPDX-License-Identifier: Apache-2.0
// The kernels of a module, each emitted once however often it is launched.
#ifndef MPT_MEMORY_KERNELS_H
#define MPT_MEMORY_KERNELS_H

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Memory/Bufferize.h"

#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace mpt::memory {

/// Functions that one launch stands for: a GPU kernel may take several.
llvm::SmallVector<mlir::func::FuncOp> partsOf(rt::LaunchOp launch);

struct Kernel {
  mlir::func::FuncOp function;
  LaunchShape shape;
};

/// Emits kernels on demand and finds equal ones: same body, same buffer types.
class KernelTable {
public:
  KernelTable(mlir::ModuleOp module, const KernelEmitter &emitter) : module(module), emitter(emitter) {}
  llvm::FailureOr<Kernel> get(FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
                              llvm::ArrayRef<mlir::MemRefType> outputs, llvm::ArrayRef<int64_t> alignments);
  /// A kernel that copies one buffer to another, element by element, converting where their types differ.
  llvm::FailureOr<Kernel> getCopy(mlir::Location loc, mlir::MemRefType from, mlir::MemRefType to,
                                  llvm::ArrayRef<int64_t> alignments);

private:
  struct Entry {
    mlir::Operation *fusion; // detached copy
    llvm::SmallVector<mlir::Type> types;
    llvm::SmallVector<int64_t> alignments;
    Kernel kernel;
  };
  mlir::ModuleOp module;
  const KernelEmitter &emitter;
  llvm::DenseMap<size_t, llvm::SmallVector<Entry, 1>> entries;
  std::vector<mlir::OwningOpRef<mlir::Operation *>> owned;
  unsigned count = 0;
};

} // namespace mpt::memory

#endif // MPT_MEMORY_KERNELS_H
