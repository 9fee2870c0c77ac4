// SPDX-License-Identifier: Apache-2.0
// GEMMs of the library mean the core ops that they expand to.
#include "Rules.h"

#include "mpt/Dialect/Library/LibraryDialect.h"

using namespace mlir;
using namespace mpt;

static LogicalResult interpretGemm(library::GemmOp op, InterpreterFrame &frame) {
  return interpretExpansion(op, frame,
                            [&](OpBuilder &builder) -> FailureOr<SmallVector<Value>> { return op.expand(builder); });
}

void mpt::attachGemmRules(MLIRContext *context) { attachRule<library::GemmOp, interpretGemm>(context); }
