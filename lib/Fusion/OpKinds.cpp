// SPDX-License-Identifier: Apache-2.0
// Kinds of single ops for grouping.
#include "OpKinds.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Interfaces/FusionRole.h"

using namespace mlir;
using namespace mpt;

bool mpt::isConstant(Operation *op) { return op && op->hasTrait<OpTrait::ConstantLike>(); }

SplatElementsAttr mpt::splatOf(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  return constant ? dyn_cast<SplatElementsAttr>(constant.getValue()) : SplatElementsAttr();
}

bool mpt::isSplat(Operation *op) {
  auto constant = dyn_cast_or_null<ConstantOp>(op);
  auto dense = constant ? dyn_cast<DenseElementsAttr>(constant.getValue()) : nullptr;
  return dense && dense.isSplat();
}

bool mpt::isFusible(Operation *op) {
  return isa<LoopLowering>(op) && !isViewOp(op) && (!isa<ConstantOp>(op) || isSplat(op));
}

bool mpt::isLibraryCall(Operation *op) { return !isa<LoopLowering>(op) && !isViewOp(op) && op->getNumOperands() != 0; }

bool mpt::isRowSum(Operation *op) {
  auto reduce = dyn_cast<ReduceOp>(op);
  ArrayRef<int64_t> axes = reduce ? reduce.getAxes() : ArrayRef<int64_t>();
  return !axes.empty() && axes.front() == rankOf(reduce.getX()) - static_cast<int64_t>(axes.size()) &&
         countOf(reduce.getY()) >= 8 && countOf(reduce.getX()) >= largePass;
}
