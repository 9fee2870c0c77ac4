// SPDX-License-Identifier: Apache-2.0
// The state that ops query and update while a function on tensors becomes one on buffers.
#ifndef MPT_MEMORY_BUFFERIZATION_H
#define MPT_MEMORY_BUFFERIZATION_H

#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/Bufferizable.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Destinations.h"

namespace mpt::memory {

class KernelTable;

/// One function on its way to buffers. Ops are bufferized in their order by `Bufferizable::bufferize`.
class BufferizationState {
public:
  BufferizationState(mlir::func::FuncOp source, mlir::func::FuncOp target, KernelTable &kernels,
                     const BufferizationPolicy &policy);

  mlir::func::FuncOp source, target;
  mlir::OpBuilder builder; ///< at the end of the target
  KernelTable &kernels;
  const BufferizationPolicy &policy;

  // ---- buffers of tensors

  /// The buffer of a tensor whose op is done; null for others.
  mlir::Value buffer(mlir::Value tensor) const { return buffers.lookup(tensor); }
  void setBuffer(mlir::Value tensor, mlir::Value memref) { buffers[tensor] = memref; }
  /// A dense buffer type for `tensor`, in its layout or in another order.
  mlir::MemRefType ownType(mlir::Value tensor) const;
  mlir::MemRefType ownType(mlir::Value tensor, llvm::ArrayRef<int64_t> order) const;

  // ---- places

  /// The buffer that `--memory-assign-destinations` wants a result in; null for one of its own.
  mlir::Value placeFor(mlir::Value result);
  /// Some op has a place for `result`, whether it was assigned or not.
  bool isWantedInPlace(mlir::Value result) const;
  /// The buffer of a state; a function has one for each.
  mlir::Value stateBuffer(mlir::FlatSymbolRefAttr state, mlir::RankedTensorType type, mlir::Location loc);

  // ---- memory

  mlir::Value allocate(mlir::Location loc, mlir::MemRefType type);
  mlir::Value view(mlir::Location loc, mlir::Value memref, llvm::ArrayRef<int64_t> shape,
                   llvm::ArrayRef<int64_t> strides, int64_t offset = 0);
  mlir::Value view(mlir::Location loc, mlir::Value memref, const Strided &as) {
    return view(loc, memref, as.shape, as.strides, as.offset);
  }
  /// Copies bytes where both buffers lie alike, else by a kernel.
  void copy(mlir::Location loc, mlir::Value from, mlir::Value to);
  /// Copies by a kernel, which converts where element types differ.
  void convert(mlir::Location loc, mlir::Value from, mlir::Value to);
  /// Launches `kernel`, of which phase kernels decides how far it runs.
  rt::LaunchOp launch(mlir::Location loc, mlir::func::FuncOp kernel, mlir::ValueRange buffers, int64_t inputs);
  /// `memref` itself when dense in `order`, else a copy that is.
  mlir::Value dense(mlir::Location loc, mlir::Value memref, llvm::ArrayRef<int64_t> order);
  /// The buffer of a result that a call writes dense in `order`: its place if that is, else one of its own.
  mlir::Value denseResult(mlir::Value tensor, llvm::ArrayRef<int64_t> order);
  /// Bytes that the address of `memref` is a multiple of, up to the policy's largest alignment.
  int64_t alignmentOf(mlir::Value memref) const;

  llvm::SmallVector<train::WriteOp> writes;    ///< of states, at the end of the function
  llvm::DenseSet<mlir::Value> mayHoldInfinity; ///< tensors with infinities of a mask

private:
  llvm::DenseMap<mlir::Value, mlir::Value> buffers; // tensor to memref
  llvm::DenseMap<mlir::Value, Destination> destinations;
  llvm::DenseMap<mlir::Attribute, mlir::Value> states;
};

inline mlir::MemRefType bufferTypeOf(mlir::Value memref) { return llvm::cast<mlir::MemRefType>(memref.getType()); }
/// Extents and strides of a buffer.
Strided stridedOf(mlir::Value memref);
/// Two buffers that show the same elements at the same addresses.
bool sameMemory(mlir::Value a, mlir::Value b);
/// True for the buffer of a state and views of it.
bool isInState(mlir::Value memref);
/// The buffer that `memref` is a view of, and where in it the view starts, in elements.
std::pair<mlir::Value, int64_t> rootOf(mlir::Value memref);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZATION_H
