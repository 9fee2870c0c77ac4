// SPDX-License-Identifier: Apache-2.0
// The policy dialect: precision policies as text.
#ifndef MPT_DIALECT_POLICY_POLICYDIALECT_H
#define MPT_DIALECT_POLICY_POLICYDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/SymbolTable.h"

#include "mpt/Dialect/Policy/PolicyDialect.h.inc"
#include "mpt/Dialect/Policy/PolicyEnums.h.inc"

namespace mpt::policy {
/// Of ops in a policy that decide for some ops; the others are settings of the policy as a whole.
template <typename Op> class DecidesOps : public mlir::OpTrait::TraitBase<Op, DecidesOps> {};
} // namespace mpt::policy

#define GET_OP_CLASSES
#include "mpt/Dialect/Policy/PolicyOps.h.inc"

#endif // MPT_DIALECT_POLICY_POLICYDIALECT_H
