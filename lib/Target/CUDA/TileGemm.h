// SPDX-License-Identifier: Apache-2.0
// GEMMs of tiles that lie in shared memory: by warps on Tensor Cores, or by threads in registers.
#ifndef MPT_LIB_TARGET_CUDA_TILEGEMM_H
#define MPT_LIB_TARGET_CUDA_TILEGEMM_H

#include "mpt-c/conv_words.hpp"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include <array>
#include <memory>

namespace mpt::cuda {

/// Arithmetic on indices; `b` inserts.
struct IndexMath {
  mlir::ImplicitLocOpBuilder &b;
  using Value = mlir::Value;
  Value number(int64_t n) { return mlir::arith::ConstantIndexOp::create(b, n); }
  Value add(Value x, Value y) { return mlir::arith::AddIOp::create(b, x, y); }
  Value sub(Value x, Value y) { return mlir::arith::SubIOp::create(b, x, y); }
  Value mul(Value x, Value y) { return mlir::arith::MulIOp::create(b, x, y); }
  Value div(Value x, Value y) { return mlir::arith::DivUIOp::create(b, x, y); }
  Value rem(Value x, Value y) { return mlir::arith::RemUIOp::create(b, x, y); }
  Value both(Value x, Value y) { return mlir::arith::AndIOp::create(b, x, y); }
  /// Without signs: false for negative x.
  Value below(Value x, Value y) { return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::ult, x, y); }
  Value choose(Value condition, Value x, Value y) { return mlir::arith::SelectOp::create(b, condition, x, y); }
};

/// One operand's chunk, twice, in shared memory.
struct OperandTile {
  int64_t extent;  ///< rows of the first operand, columns of the second
  bool depthFirst; ///< neighbours in memory are terms of one row (of one column)
  mlir::Value memory;
};

/// The GEMM of a chunk of two operands, of FP32 or of 16 bits.
class TileGemm {
public:
  static std::unique_ptr<TileGemm> create(mlir::ImplicitLocOpBuilder &b, mlir::Type operand, conv::TileShape shape,
                                          mlir::Value thread);
  virtual ~TileGemm() = default;

  /// Extents of an operand's memory behind the two buffers, with padding against bank conflicts.
  virtual std::array<int64_t, 2> extents(int64_t extent, bool depthFirst) const = 0;
  /// Whether an operand that is read depth first lies so.
  virtual bool keepsDepthFirst() const = 0;
  /// Sums of zero, then with a chunk added that lies in the buffers of number `buffer`.
  virtual llvm::SmallVector<mlir::Value> start() = 0;
  virtual llvm::SmallVector<mlir::Value> add(const OperandTile &a, const OperandTile &b, mlir::Value buffer,
                                             mlir::ValueRange sums) = 0;
  /// The tile leaves by way of `stage`, FP32 [stageRows, columns and padding], in so many passes: its row s of pass p
  /// is the tile's row rowOf(p, s).
  virtual int64_t passes() const = 0;
  virtual int64_t stageRows() const = 0;
  virtual mlir::Value rowOf(int64_t pass, mlir::Value staged) = 0;
  virtual void leave(int64_t pass, mlir::ValueRange sums, mlir::Value stage) = 0;

protected:
  TileGemm(mlir::ImplicitLocOpBuilder &b, conv::TileShape shape, mlir::Value thread)
      : b(b), math{b}, shape(shape), thread(thread) {}
  mlir::ImplicitLocOpBuilder &b;
  IndexMath math;
  conv::TileShape shape;
  mlir::Value thread;
};

/// Shared memory of a kernel, in the kernel's module under a name that begins with `stem`.
mlir::Value sharedMemory(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<int64_t> shape, mlir::Type element,
                         int64_t &bytes, int64_t alignment = 32, llvm::StringRef stem = "mpt_tile_");

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_TILEGEMM_H
