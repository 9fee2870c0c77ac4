// SPDX-License-Identifier: Apache-2.0
// Rewrites one function from tensors to buffers; the state that its parts share.
#ifndef MPT_MEMORY_BUFFERIZER_H
#define MPT_MEMORY_BUFFERIZER_H

#include "Kernels.h"
#include "Statistics.h"

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Memory/Orders.h"

namespace mpt::memory {

class Bufferizer {
public:
  Bufferizer(mlir::func::FuncOp source, KernelTable &kernels, const BufferizeOptions &options)
      : source(source), kernels(kernels), options(options),
        gathered(options.device ? gatherSums(source) : ChannelSums()), orders(source), builder(source) {}

  /// Replaces the source function by its form on buffers.
  llvm::LogicalResult run();

private:
  /// Where a value should be written so that no copy is needed: an output, a state, a part of a concatenation.
  struct Destination {
    llvm::SmallVector<mlir::Operation *, 2> views; // from the value to what `use` takes
    mlir::OpOperand *use;
  };

  // Values and views (Bufferizer.cpp).
  llvm::LogicalResult lower(mlir::Operation *op);
  llvm::LogicalResult lowerView(mlir::Operation *op);
  llvm::LogicalResult lowerFusion(FusionOp fusion);
  /// A fusion that only repeats its operand becomes a view with strides of 0.
  bool lowerAsView(FusionOp fusion);
  llvm::LogicalResult lowerConcat(ConcatOp concat);
  /// The buffer that the parts of `concat` go to, made at the first part.
  mlir::Value concatBuffer(ConcatOp concat, mlir::Location loc);
  llvm::LogicalResult finish(mlir::func::ReturnOp terminator);
  mlir::Value buffer(mlir::Value tensor) const { return buffers.lookup(tensor); }
  mlir::MemRefType typeOf(mlir::Value memref) const { return llvm::cast<mlir::MemRefType>(memref.getType()); }
  mlir::Value allocate(mlir::Location loc, mlir::MemRefType type);
  /// Bytes that the address of `memref` is a multiple of, up to what kernels care about.
  int64_t alignmentOf(mlir::Value memref) const;
  mlir::Value view(mlir::Location loc, mlir::Value memref, llvm::ArrayRef<int64_t> shape,
                   llvm::ArrayRef<int64_t> strides, int64_t offset = 0);
  llvm::LogicalResult copy(mlir::Location loc, mlir::Value from, mlir::Value to);
  /// By a kernel, which converts where element types differ.
  llvm::LogicalResult launchCopy(mlir::Location loc, mlir::Value from, mlir::Value to);
  llvm::FailureOr<mlir::Value> widened(mlir::Location loc, mlir::Value memref, const Order &order);
  llvm::FailureOr<mlir::Value> float8Operand(mlir::Location loc, mlir::Value memref, bool depthLast, bool native);
  /// `memref` itself when dense in `order`, else a copy that is.
  llvm::FailureOr<mlir::Value> dense(mlir::Location loc, mlir::Value memref, llvm::ArrayRef<int64_t> order);

  // Destinations (Destinations.cpp).
  void findDestinations();
  /// A buffer to write `result` into, and whether that is a state that the writing op must be able to update in place.
  struct Target {
    mlir::Value memref;
    mlir::FlatSymbolRefAttr state;
  };
  Target targetFor(mlir::Value result);
  mlir::Value resolve(const Destination &destination, mlir::Location loc, mlir::FlatSymbolRefAttr &state);
  /// Uses of the state's old value by ops other than `op` are over when `op` runs.
  bool readersPrecede(mlir::FlatSymbolRefAttr state, mlir::Operation *op) const;
  bool readByFusion(mlir::FlatSymbolRefAttr state, FusionOp fusion, unsigned output, const Kernel &kernel,
                    mlir::Value target) const;
  mlir::Value stateBuffer(mlir::FlatSymbolRefAttr state, mlir::RankedTensorType type, mlir::Location loc);

  // GEMMs (Gemm.cpp).
  /// A dense row-major buffer for `tensor`, a result of a library call: where it is wanted if that is one.
  mlir::Value denseResult(mlir::Value tensor);
  /// Buffers of a and b in types and strides that the runtime takes.
  llvm::FailureOr<std::pair<mlir::Value, mlir::Value>> gemmOperands(library::GemmOp gemm);
  /// Where `gemm` writes its result; `flipped` where the transposes are to be multiplied in the other order.
  mlir::Value gemmResult(library::GemmOp gemm, bool &flipped);
  llvm::LogicalResult lowerGemm(library::GemmOp gemm);
  // Convolutions (Convolution.cpp).
  llvm::LogicalResult lowerConv(mlir::Operation *op, rt::ConvKind kind, mlir::Value x, mlir::Value w, mlir::Value y);

  // Attention (Attention.cpp).
  llvm::LogicalResult lowerAttend(rt::AttendOp op);
  llvm::LogicalResult lowerAttendGradient(rt::AttendGradientOp op);
  llvm::FailureOr<mlir::Value> withUnitDepth(mlir::Location loc, mlir::Value tensor);
  mlir::Value attentionResult(mlir::Value tensor);
  mlir::Value attentionBias(mlir::Location loc, mlir::Value bias, mlir::Value q, mlir::Value k);

  mlir::func::FuncOp source, target;
  KernelTable &kernels;
  const BufferizeOptions &options;
  ChannelSums gathered;
  Orders orders;
  mlir::OpBuilder builder;
  llvm::DenseMap<mlir::Value, mlir::Value> buffers; // tensor to memref
  llvm::DenseSet<mlir::Value> infinite;             // tensors that may hold infinities of a mask
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Destination, 1>> destinations;
  llvm::DenseMap<mlir::Operation *, int64_t> positions;
  llvm::DenseMap<mlir::Attribute, llvm::SmallVector<mlir::OpOperand *>> readers; // state to uses of its old value
  llvm::DenseMap<mlir::Attribute, mlir::Value> states;
  llvm::DenseMap<mlir::Value, mlir::Value> concats; // result to the buffer that its parts go to
};

/// Reshape, transpose or slice: a view of its operand wherever strides allow.
bool isView(mlir::Operation *op);
/// Two buffers that show the same elements at the same addresses.
bool sameMemory(mlir::Value a, mlir::Value b);

} // namespace mpt::memory

#endif // MPT_MEMORY_BUFFERIZER_H
