// SPDX-License-Identifier: Apache-2.0
// The base of attention kernels, whichever Tensor Core instructions make their scores.
#ifndef MPT_LIB_TARGET_CUDA_ATTENTIONKERNEL_H
#define MPT_LIB_TARGET_CUDA_ATTENTIONKERNEL_H

#include "AttentionTiles.h"
#include "TileGemm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace mpt::cuda {

/// One kernel of attention while it is made: its function, arguments and words.
class AttentionKernel {
protected:
  using Value = mlir::Value;
  using Values = llvm::SmallVector<mlir::Value>;
  static constexpr int64_t kVector = 8, kPiece = 4; ///< elements of one access to operands and to scores

  /// A piece of scores: neighbours in a row, or by keys in a column.
  struct Place {
    Value row, column, query, key; ///< of the first; `query` and `key` count from the head's beginning
  };

  AttentionKernel(mlir::OpBuilder &outer, mlir::Location loc, const attention::Tile &tile, bool isLarge);

  // ---- memory
  Value word(int64_t at) const { return indices[at]; }
  void readWords();
  Value number32(int64_t n) { return mlir::arith::ConstantOp::create(b, b.getI32IntegerAttr(static_cast<int32_t>(n))); }
  Value word32(int64_t at);
  Value real(double x) { return mlir::arith::ConstantOp::create(b, b.getF32FloatAttr(static_cast<float>(x))); }
  Value realWord(int64_t at) { return mlir::arith::BitcastOp::create(b, f32, word32(at)); }
  Value base(int64_t strides, Value head) {
    return math.add(math.mul(batch, word(strides)), math.mul(head, word(strides + 1)));
  }
  Value loadReal(Value memory, Value at);

  // ---- elements
  Value score(Value gemm, const Place &place, int64_t i, Value valid);
  Value isSeen(const Place &place, int64_t i);
  Value keyOf(const Place &place, int64_t i) { return math.add(place.key, math.number(i)); }
  Values random(Value row, Value key, bool all);
  Values kept(const Place &place);
  Value probability(Value score, Value statistics, Value valid) {
    Value p = mlir::math::ExpOp::create(b, mlir::arith::SubFOp::create(b, score, statistics));
    return math.choose(valid, p, real(0));
  }
  Value finite(Value x) {
    Value none = mlir::arith::CmpFOp::create(b, mlir::arith::CmpFPredicate::OEQ, x, real(-INFINITY));
    return math.choose(none, real(0), x);
  }
  Value dropped(Value p, Value keeps) {
    return tile.drops ? math.choose(keeps, mlir::arith::MulFOp::create(b, p, keptScale), real(0)) : p;
  }

  // ---- the kernel
  void makeFunction();
  void findTile(Value number);
  Value chunksOfKeys(int64_t size);
  Values overChunks(Value first, Value end, mlir::ValueRange initial,
                    llvm::function_ref<Values(Value, mlir::ValueRange)> body, int64_t step = 1);
  Value joinedStatistics(Value top, Value sum, int64_t lanes);
  void leaveStatistics(Value result, Value row, Value writes);

  mlir::ImplicitLocOpBuilder b;
  IndexMath math;
  const attention::Tile &tile;
  const int64_t most, rows;
  const mlir::Type f32, element;
  mlir::func::FuncOp function;
  Value thread, words, q, k, v, bias, key, o, statistics, dO, delta, dq, dk, dv;
  Value indices[attention::Words], causal, queries, keys, scale, keptScale, threshold;
  Value randomKey[2], randomCounter[2]; ///< of Philox; the words of the counter that all elements share
  Value batch, head, keyHead, firstRow;
};

} // namespace mpt::cuda

#endif // MPT_LIB_TARGET_CUDA_ATTENTIONKERNEL_H
