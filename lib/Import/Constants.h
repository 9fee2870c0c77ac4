// SPDX-License-Identifier: Apache-2.0
// Constants whose elements a rule looks at one by one.
#ifndef MPT_LIB_IMPORT_CONSTANTS_H
#define MPT_LIB_IMPORT_CONSTANTS_H

#include "Binder.h"

#include "mpt/Evaluation/Tensor.h"

namespace mpt {

/// The elements of `values`, which messages call `what`; fails beyond 2^24 of them: a small file may say any number of
/// equal ones.
inline llvm::FailureOr<Tensor> elementsOf(Binder &b, mlir::ElementsAttr values, llvm::StringRef what) {
  if (values.getNumElements() > (1 << 24))
    return b.fail() << "expected at most 2^24 constant numbers as " << what << ", got " << values.getNumElements();
  return Tensor::fromAttribute(values, b.loc);
}

/// A constant of type `to` that `rewrite` makes of `values`, element by element. Equal ones are rewritten once,
/// whatever their number.
inline llvm::FailureOr<mlir::Value>
rewritten(Binder &b, mlir::ElementsAttr values, mlir::RankedTensorType to,
          llvm::function_ref<Tensor(const Tensor &, mlir::RankedTensorType)> rewrite) {
  auto equal = llvm::dyn_cast<mlir::SplatElementsAttr>(values);
  auto from = llvm::cast<mlir::RankedTensorType>(values.getType());
  const int64_t one = 1;
  llvm::FailureOr<Tensor> known = Tensor::fromAttribute(equal ? equal.resizeSplat(from.clone(one)) : values, b.loc);
  if (failed(known))
    return llvm::failure();
  mlir::DenseElementsAttr result = rewrite(*known, equal ? to.clone(one) : to).toAttribute();
  return b.constant(equal ? result.resizeSplat(to) : result);
}

} // namespace mpt

#endif // MPT_LIB_IMPORT_CONSTANTS_H
