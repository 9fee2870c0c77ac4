// SPDX-License-Identifier: Apache-2.0
// Attaches all families' rules to their dialects.
#include "mpt/Evaluation/Evaluation.h"

#include "Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"

using namespace mlir;
using namespace mpt;

void mpt::registerEvaluationModels(DialectRegistry &registry) {
  registry.addExtension(+[](MLIRContext *context, MPTDialect *) {
    attachElementwiseRules(context);
    attachCastRules(context);
    attachMatMulRules(context);
    attachConvRules(context);
    attachPoolRules(context);
    attachResizeRules(context);
    attachRecurrentRules(context);
    attachReduceRules(context);
    attachShapeRules(context);
    attachGatherRules(context);
    attachScatterRules(context);
    attachRandomRules(context);
    attachNormRules(context);
    attachLossRules(context);
    attachOptimizerRules(context);
    attachTrainingRules(context);
    attachFusionRules(context);
  });
  registry.addExtension(+[](MLIRContext *context, train::TrainDialect *) { attachTrainRules(context); });
  registry.addExtension(+[](MLIRContext *context, library::LibraryDialect *) {
    attachGemmRules(context);
    attachConvCallRule(context);
    attachAttentionRules(context);
  });
}
