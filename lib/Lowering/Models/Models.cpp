// SPDX-License-Identifier: Apache-2.0
// Attachment of all families' loop forms, roles in fusion and decompositions.
#include "mpt/Lowering/Models/Models.h"

#include "mpt/Dialect/Train/TrainDialect.h"

#include "mlir/IR/DialectRegistry.h"

using namespace mlir;
using namespace mpt;

void mpt::registerLoopLoweringModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachElementwiseModels(context);
    attachCastModels(context);
    attachShapeModels(context);
    attachReduceModels(context);
    attachPoolModels(context);
    attachScatterModels(context);
    attachDecompositions(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) { attachTrainDecompositions(context); });
}
