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

} // namespace mpt

#endif // MPT_LIB_IMPORT_CONSTANTS_H
