// SPDX-License-Identifier: Apache-2.0
// Attaches the check ops' rules, which report instead of computing, and registers what the interpreter reads.
#include "mpt/Reference/Reference.h"

#include "CheckRules.h"

#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Dialect/Library/LibraryDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Evaluation/Evaluation.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mpt;

void mpt::registerReferenceModels(DialectRegistry &registry) {
  registerEvaluationModels(registry);
  registry.addExtension(+[](MLIRContext *context, check::CheckDialect *) { attachCheckRules(context); });
}

void mpt::registerReferenceDialects(DialectRegistry &registry) {
  registry.insert<MPTDialect, train::TrainDialect, check::CheckDialect, library::LibraryDialect, func::FuncDialect>();
  registerReferenceModels(registry);
}
