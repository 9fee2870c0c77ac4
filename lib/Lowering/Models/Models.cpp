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
    attachRandomModels(context);
    attachShapeModels(context);
    attachGatherModels(context);
    attachScatterModels(context);
    attachReduceModels(context);
    attachPoolModels(context);
    attachResizeModels(context);
    attachLossModels(context);
    attachOptimizerModels(context);
    attachTrainingModels(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) {
    attachTrainModels(context);
    attachScaleModels(context);
  });
}
