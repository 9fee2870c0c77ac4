// SPDX-License-Identifier: Apache-2.0
// Shared by the families' result-type rules.
#ifndef MPT_LIB_DIALECT_MPT_TYPEINFERENCE_H
#define MPT_LIB_DIALECT_MPT_TYPEINFERENCE_H

#include "mpt/Dialect/MPT/MPTDialect.h"

/// Head of an InferTypeOpAdaptor rule; the body appends to `types`.
#define MPT_INFER(OP)                                                                                                  \
  ::llvm::LogicalResult OP::inferReturnTypes(::mlir::MLIRContext *context, std::optional<::mlir::Location> loc,        \
                                             OP::Adaptor adaptor, ::llvm::SmallVectorImpl<::mlir::Type> &types)

/// Results may have another float type than the inferred one; shapes must agree.
#define MPT_SAME_SHAPES(OP)                                                                                            \
  bool OP::isCompatibleReturnTypes(::mlir::TypeRange inferred, ::mlir::TypeRange actual) {                             \
    return ::mpt::haveSameShapes(inferred, actual);                                                                    \
  }

namespace mpt {

inline bool haveSameShapes(mlir::TypeRange inferred, mlir::TypeRange actual) {
  return llvm::equal(inferred, actual, [](mlir::Type a, mlir::Type b) {
    auto x = llvm::cast<mlir::RankedTensorType>(a), y = llvm::cast<mlir::RankedTensorType>(b);
    return x.getShape() == y.getShape() &&
           llvm::isa<mlir::FloatType>(x.getElementType()) == llvm::isa<mlir::FloatType>(y.getElementType());
  });
}

/// True where `indices` may name elements of `x` along `axis`: one rank, and nowhere else a larger extent.
inline bool canIndexElements(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> indices, int64_t axis) {
  if (axis < 0 || axis >= static_cast<int64_t>(x.size()) || indices.size() != x.size())
    return false;
  return llvm::all_of(llvm::seq<int64_t>(0, x.size()), [&](int64_t i) { return i == axis || indices[i] <= x[i]; });
}

/// True where `indices` may hold index tuples into `x` behind `batch` shared dimensions.
inline bool canIndexTuples(llvm::ArrayRef<int64_t> x, llvm::ArrayRef<int64_t> indices, int64_t batch) {
  auto rank = static_cast<int64_t>(x.size());
  return batch >= 0 && batch < static_cast<int64_t>(indices.size()) && batch <= rank && indices.back() >= 0 &&
         batch + indices.back() <= rank && indices.take_front(batch) == x.take_front(batch);
}

/// Fails at `op` unless `key` can be one of the counter-based generator: tensor<2xi64>, seed and step.
llvm::LogicalResult verifyKey(mlir::Operation *op, mlir::Value key);

} // namespace mpt

#endif // MPT_LIB_DIALECT_MPT_TYPEINFERENCE_H
