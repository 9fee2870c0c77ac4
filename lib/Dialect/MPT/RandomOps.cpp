// SPDX-License-Identifier: Apache-2.0
// Types and verification of ops that draw from the counter-based generator.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/Draws.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(DropoutOp) {
  types.push_back(adaptor.getX().getType());
  return success();
}

LogicalResult mpt::verifyKey(Operation *op, Value key) {
  RankedTensorType type = tensorType(key);
  if (type.getShape() != ArrayRef<int64_t>{2} || !type.getElementType().isInteger(64))
    return op->emitOpError() << "expected a generator key of type tensor<2xi64>, got " << type;
  return success();
}

LogicalResult DropoutOp::verify() {
  double ratio = getRatio().convertToDouble();
  if (!(ratio >= 0.0 && ratio < 1.0))
    return emitOpError() << "expected a ratio in [0, 1), got " << ratio;
  return verifyKey(*this, getKey());
}

OpOperand *mpt::keyOf(Operation *op) {
  if (!op->getAttrOfType<IntegerAttr>(kStreamOfDraws) || op->getNumOperands() == 0)
    return nullptr;
  OpOperand &last = op->getOpOperand(op->getNumOperands() - 1);
  auto type = dyn_cast<RankedTensorType>(last.get().getType());
  return type && type.getElementType().isInteger(64) && type.getShape() == ArrayRef<int64_t>{2} ? &last : nullptr;
}
