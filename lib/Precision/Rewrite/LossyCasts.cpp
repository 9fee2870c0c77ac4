// SPDX-License-Identifier: Apache-2.0
// Which casts round, and the count of them on a function.
#include "mpt/Precision/LossyCasts.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mpt;

bool mpt::isLossyCast(Operation *op) {
  auto cast = dyn_cast<CastOp>(op);
  if (!cast)
    return false;
  auto from = dyn_cast<FloatType>(tensorType(cast.getX()).getElementType());
  auto to = dyn_cast<FloatType>(tensorType(cast.getY()).getElementType());
  return from && to && !llvm::APFloat::isRepresentableBy(from.getFloatSemantics(), to.getFloatSemantics());
}

void mpt::addLossyCasts(Operation *op, int64_t count) {
  auto function = op->getParentOfType<func::FuncOp>();
  auto recorded = function ? getAttr<MPTDialect::LossyCastsAttrHelper>(function) : IntegerAttr();
  if (recorded)
    setAttr<MPTDialect::LossyCastsAttrHelper>(function,
                                              Builder(op->getContext()).getI64IntegerAttr(recorded.getInt() + count));
}
