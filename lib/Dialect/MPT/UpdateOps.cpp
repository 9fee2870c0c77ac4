// SPDX-License-Identifier: Apache-2.0
// Types of the further optimizers: new values have the types of the old ones.
#include "mpt/Dialect/MPT/UpdateOps.h"

#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

/// The new parameter and the new `slots`, which have the parameter's shape as the gradient does.
static LogicalResult likeParameter(std::optional<Location> loc, Value param, Value grad, ValueRange slots,
                                   SmallVectorImpl<Type> &types) {
  types.push_back(param.getType());
  llvm::append_range(types, slots.getTypes());
  SmallVector<Value> others(slots);
  others.push_back(grad);
  for (Value other : others)
    if (tensorType(other).getShape() != tensorType(param).getShape())
      return emitOptionalError(loc, "expected the parameter's shape, ", param.getType(), ", got ", other.getType());
  return success();
}

MPT_INFER(MomentumOp) { return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {adaptor.getSlot()}, types); }

MPT_INFER(AdamHatOp) {
  return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {adaptor.getMoment1(), adaptor.getMoment2()}, types);
}

MPT_INFER(RMSPropOp) {
  size_t slots = 1 + adaptor.getCentered() + (adaptor.getMomentum().convertToDouble() != 0.0);
  if (adaptor.getSlots().size() != slots)
    return emitOptionalError(loc, "C1: expected ", slots, " slots, got ", adaptor.getSlots().size());
  return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), adaptor.getSlots(), types);
}

MPT_INFER(LionOp) { return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {adaptor.getMoment()}, types); }

MPT_INFER(LAMBOp) {
  return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {adaptor.getMoment1(), adaptor.getMoment2()}, types);
}

MPT_INFER(LARSOp) { return likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {adaptor.getSlot()}, types); }

SmallVector<SmallVector<int64_t>> AdafactorOp::slotShapes(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> rows(shape), columns(shape);
  if (shape.size() < 2)
    return {rows};
  rows.back() = 1;
  columns[shape.size() - 2] = 1;
  return {rows, columns};
}

MPT_INFER(AdafactorOp) {
  SmallVector<SmallVector<int64_t>> shapes = slotShapes(tensorType(adaptor.getParam()).getShape());
  if (!llvm::equal(adaptor.getSlots(), shapes,
                   [](Value slot, ArrayRef<int64_t> shape) { return tensorType(slot).getShape() == shape; }))
    return emitOptionalError(loc, "C1: expected slots for rows and columns, or one of the parameter's shape");
  if (failed(likeParameter(loc, adaptor.getParam(), adaptor.getGrad(), {}, types)))
    return failure();
  llvm::append_range(types, adaptor.getSlots().getTypes());
  return success();
}
