// SPDX-License-Identifier: Apache-2.0
// The meaning of results by the meaning of operands, a rule for each kind of arithmetic.
#ifndef MPT_LIB_PRECISION_MEANING_RULES_H
#define MPT_LIB_PRECISION_MEANING_RULES_H

#include "mpt/Precision/Meaning.h"

namespace mpt {

Meaning meaningOfConstant(const ElementRange &range);
/// All that the type allows: flags are 0 or 1, integers of 64 bits have no bound.
Meaning meaningOfType(mlir::Type type);

/// The meaning of `result` where `op` does `arithmetic`. A result is not yet known to be large by its bounds alone.
Meaning infer(Arithmetic arithmetic, mlir::Operation *op, llvm::ArrayRef<const Meaning *> operands, mlir::Type result);

} // namespace mpt

#endif // MPT_LIB_PRECISION_MEANING_RULES_H
