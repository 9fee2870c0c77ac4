// SPDX-License-Identifier: Apache-2.0
// Scores of classes as losses take them.
#ifndef MPT_LIB_IMPORT_CLASSROWS_H
#define MPT_LIB_IMPORT_CLASSROWS_H

#include "Binder.h"

namespace mpt {

/// Scores [N, C, D...] as rows [N D..., C].
inline mlir::Value classRows(Binder &b, mlir::Value x) {
  mlir::RankedTensorType type = tensorType(x);
  llvm::SmallVector<int64_t> order = {0};
  order.append(axisRange(2, type.getRank()));
  order.push_back(1);
  int64_t classes = type.getDimSize(1);
  return b.reshape(b.transpose(x, order), {type.getNumElements() / std::max<int64_t>(classes, 1), classes});
}

} // namespace mpt

#endif // MPT_LIB_IMPORT_CLASSROWS_H
