// SPDX-License-Identifier: Apache-2.0
// Short forms for building core ops: scalars splat to the other operand's type, axes drop or come back by name.
#ifndef MPT_DIALECT_MPT_GRAPHBUILDER_H
#define MPT_DIALECT_MPT_GRAPHBUILDER_H

#include "mpt/Dialect/MPT/MPTDialect.h"

namespace mpt {

/// The static, ranked type of a core value.
inline mlir::RankedTensorType tensorType(mlir::Value value) {
  return llvm::cast<mlir::RankedTensorType>(value.getType());
}

/// FP32 unless `type` is wider: the type in which composites compute.
mlir::FloatType wideType(mlir::Type elementType);

/// Builds core ops at a location. Every method returns a new value; nothing broadcasts unless the method's name says
/// so.
class GraphBuilder {
public:
  GraphBuilder(mlir::OpBuilder &builder, mlir::Location loc) : builder(builder), loc(loc) {}

  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...)->getResult(0);
  }

  /// A constant tensor of `type`, every element `value`.
  mlir::Value splat(mlir::RankedTensorType type, double value);
  mlir::Value splatLike(mlir::Value like, double value) { return splat(tensorType(like), value); }
  mlir::Value scalar(mlir::Type elementType, double value);
  mlir::Value constant(mlir::ElementsAttr value);
  /// An i64 vector constant.
  mlir::Value indices(llvm::ArrayRef<int64_t> values);

  mlir::Value add(mlir::Value a, mlir::Value b) { return make<AddOp>(a, b); }
  mlir::Value sub(mlir::Value a, mlir::Value b) { return make<SubOp>(a, b); }
  mlir::Value mul(mlir::Value a, mlir::Value b) { return make<MulOp>(a, b); }
  mlir::Value div(mlir::Value a, mlir::Value b) { return make<DivOp>(a, b); }
  mlir::Value add(mlir::Value a, double b) { return add(a, splatLike(a, b)); }
  mlir::Value mul(mlir::Value a, double b) { return mul(a, splatLike(a, b)); }
  mlir::Value neg(mlir::Value a) { return make<NegOp>(a); }
  mlir::Value compare(Predicate predicate, mlir::Value a, mlir::Value b) { return make<CompareOp>(a, b, predicate); }
  mlir::Value compare(Predicate predicate, mlir::Value a, double b) { return compare(predicate, a, splatLike(a, b)); }
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b) {
    return make<SelectOp>(a.getType(), condition, a, b);
  }

  /// `x` with another element type, rounded to nearest even; `x` itself when it has it already.
  mlir::Value cast(mlir::Value x, mlir::Type elementType);
  /// `x` in wideType of its element type.
  mlir::Value widen(mlir::Value x) { return cast(x, wideType(tensorType(x).getElementType())); }

  mlir::Value reshape(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value transpose(mlir::Value x, llvm::ArrayRef<int64_t> permutation);
  /// Dimension i of `x` becomes dimension dims[i] of a tensor of `shape`.
  mlir::Value broadcast(mlir::Value x, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> dims);
  /// NumPy rules: trailing dimensions line up.
  mlir::Value broadcastTo(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  /// Undoes a reduction: `x`, which has the dimensions of `shape` without `axes`, repeated along `axes`.
  mlir::Value broadcastAlong(mlir::Value x, llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> axes);
  mlir::Value reduce(ReduceKind kind, mlir::Value x, llvm::ArrayRef<int64_t> axes);
  mlir::Value sum(mlir::Value x, llvm::ArrayRef<int64_t> axes) { return reduce(ReduceKind::sum, x, axes); }
  mlir::Value mean(mlir::Value x, llvm::ArrayRef<int64_t> axes) { return reduce(ReduceKind::mean, x, axes); }
  /// Sums `x` down to `shape`: the adjoint of broadcastTo.
  mlir::Value sumTo(mlir::Value x, llvm::ArrayRef<int64_t> shape);
  mlir::Value matmul(mlir::Value a, mlir::Value b, bool transposeA = false, bool transposeB = false);
  mlir::Value slice(mlir::Value x, llvm::ArrayRef<int64_t> starts, llvm::ArrayRef<int64_t> sizes,
                    llvm::ArrayRef<int64_t> strides = {});
  mlir::Value concat(mlir::ValueRange inputs, int64_t axis) { return make<ConcatOp>(inputs, axis); }

  mlir::OpBuilder &builder;
  mlir::Location loc;
};

/// 0, 1, ... rank - 1 without `axes`.
llvm::SmallVector<int64_t> otherAxes(int64_t rank, llvm::ArrayRef<int64_t> axes);
/// from, from + 1, ... to - 1.
llvm::SmallVector<int64_t> axisRange(int64_t from, int64_t to);

} // namespace mpt

#endif // MPT_DIALECT_MPT_GRAPHBUILDER_H
