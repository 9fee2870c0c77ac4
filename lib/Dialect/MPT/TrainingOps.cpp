// SPDX-License-Identifier: Apache-2.0
// Types of gradients that a model states itself.
#include "mpt/Dialect/MPT/TrainingOps.h"

#include "TypeInference.h"

#include "mpt/Dialect/MPT/TensorTypes.h"

using namespace mlir;
using namespace mpt;

MPT_INFER(CotangentOp) {
  types.push_back(adaptor.getValue().getType());
  return success();
}

MPT_INFER(CustomGradientOp) {
  ValueRange values = adaptor.getValues(), cotangents = adaptor.getCotangents(), inputs = adaptor.getInputs();
  if (!inputs.empty() && !llvm::equal(values.getTypes(), cotangents.getTypes()))
    return emitOptionalError(loc, "C1: expected a cotangent of each value's type, got ", cotangents.size(),
                             " cotangents of ", values.size(), " values");
  if (!llvm::equal(inputs, adaptor.getGradients(),
                   [](Value input, Value gradient) { return shapeOf(input) == shapeOf(gradient); }))
    return emitOptionalError(loc, "C2: expected a gradient of each input's shape, got ", adaptor.getGradients().size(),
                             " gradients of ", inputs.size(), " inputs");
  llvm::append_range(types, values.getTypes());
  return success();
}
