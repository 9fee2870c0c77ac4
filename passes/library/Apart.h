// SPDX-License-Identifier: Apache-2.0
// Reasons why attentions were not formed or improved, for the report of kernels.
#ifndef MPT_PASSES_LIBRARY_APART_H
#define MPT_PASSES_LIBRARY_APART_H

#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/ValueKeys.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace mpt {

/// Notes on the function of `op` why it is not, or not a better, attention.
inline void noteApart(mlir::Operation *op, const llvm::Twine &reason) {
  auto function = op->getParentOfType<mlir::func::FuncOp>();
  mlir::Builder b(op->getContext());
  llvm::SmallVector<mlir::Attribute> pairs;
  if (mlir::ArrayAttr before = getAttr<library::LibraryDialect::ApartAttrHelper>(function))
    llvm::append_range(pairs, before);
  pairs.push_back(b.getStringAttr(nodeName(op->getLoc())));
  pairs.push_back(b.getStringAttr(reason));
  setAttr<library::LibraryDialect::ApartAttrHelper>(function, b.getArrayAttr(pairs));
}

} // namespace mpt

#endif // MPT_PASSES_LIBRARY_APART_H
