// SPDX-License-Identifier: Apache-2.0
// Types of scatters.
#include "TypeInference.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(ScatterElementsOp) {
  if (tensorType(adaptor.getIndices()).getShape() != tensorType(adaptor.getUpdates()).getShape())
    return emitOptionalError(loc, "expected indices and updates of one shape");
  types.push_back(adaptor.getData().getType());
  return success();
}

MPT_INFER(ScatterNDOp) {
  types.push_back(adaptor.getData().getType());
  return success();
}
