// SPDX-License-Identifier: Apache-2.0
// Verification of fusion regions.
#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

LogicalResult FusionOp::verify() {
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getInputs().getTypes())
    return emitOpError() << "expected one body argument of the same type an input";
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield || yield.getValues().getTypes() != getOutputs().getTypes())
    return emitOpError() << "expected mpt.yield of the result types at the end of the body";
  return success();
}
