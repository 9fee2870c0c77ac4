// SPDX-License-Identifier: Apache-2.0
// Attaches the check ops' rules, which report instead of computing.
#include "mpt/Reference/Reference.h"

#include "CheckRules.h"

#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Evaluation/Evaluation.h"

using namespace mlir;
using namespace mpt;

void mpt::registerReferenceModels(DialectRegistry &registry) {
  registerEvaluationModels(registry);
  registry.addExtension(+[](MLIRContext *context, check::CheckDialect *) { attachCheckRules(context); });
}
