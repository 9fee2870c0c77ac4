// SPDX-License-Identifier: Apache-2.0
// What the families' result-type rules share.
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

/// Extent of the dilated window of `kernel` samples.
inline int64_t windowSpan(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

} // namespace mpt

#endif // MPT_LIB_DIALECT_MPT_TYPEINFERENCE_H
