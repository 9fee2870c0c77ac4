// SPDX-License-Identifier: Apache-2.0
// Types of the optimizer family: new values have the types of the old ones.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

/// Every tensor must have the parameter's shape.
static LogicalResult checkShapes(std::optional<Location> loc, Value param, ValueRange others) {
  for (Value other : others)
    if (tensorType(other).getShape() != tensorType(param).getShape())
      return emitOptionalError(loc, "expected the parameter's shape, ", param.getType(), ", got ", other.getType());
  return success();
}

MPT_INFER(SGDOp) {
  bool hasSlot = static_cast<bool>(adaptor.getSlot());
  if (hasSlot != (adaptor.getMomentum().convertToDouble() != 0.0))
    return emitOptionalError(loc, "C1: expected a momentum slot if and only if momentum is not 0");
  types.push_back(adaptor.getParam().getType());
  if (hasSlot)
    types.push_back(adaptor.getSlot().getType());
  return checkShapes(loc, adaptor.getParam(), {adaptor.getGrad()});
}

MPT_INFER(AdamOp) {
  types.append({adaptor.getParam().getType(), adaptor.getMoment1().getType(), adaptor.getMoment2().getType()});
  return checkShapes(loc, adaptor.getParam(), {adaptor.getGrad(), adaptor.getMoment1(), adaptor.getMoment2()});
}

MPT_INFER(AdagradOp) {
  types.append({adaptor.getParam().getType(), adaptor.getAccumulator().getType()});
  return checkShapes(loc, adaptor.getParam(), {adaptor.getGrad(), adaptor.getAccumulator()});
}
