// SPDX-License-Identifier: Apache-2.0
// Bounds of loops that the user gives beside the file, on their way from the protobuf side to the rule.
#ifndef MPT_LIB_IMPORT_LOOPS_H
#define MPT_LIB_IMPORT_LOOPS_H

#include "llvm/ADT/StringRef.h"

namespace mpt {

/// Attribute of a Loop node: the most steps that are compiled of it (--max-steps). Files have none that is called so.
constexpr llvm::StringLiteral maxStepsAttr = "max_steps";
/// No loop is unrolled further. Exporters write the largest integer for "no bound".
constexpr int64_t mostSteps = 1 << 14;

} // namespace mpt

#endif // MPT_LIB_IMPORT_LOOPS_H
