// SPDX-License-Identifier: Apache-2.0
// Wrong modules made of a right one: each has one thing dropped, doubled, moved or exchanged.
#ifndef MPT_TEST_MUTANTS_MUTANTS_H
#define MPT_TEST_MUTANTS_MUTANTS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <string>
#include <vector>

namespace mpt::mutants {

enum class Kind {
  drop,       ///< an op's result is its operand of the same type
  twice,      ///< an op is applied to its own result
  exchange,   ///< an operand is another value of its type
  swap,       ///< two operands of one type change places
  omit,       ///< one of many operands is left out
  rename,     ///< and for or, min for max, mul for div, add for sub
  always,     ///< a write loses its condition
  constant,   ///< a write's condition is a constant
  forget,     ///< a write is left out
  redirect,   ///< a read or write is of another state of its type
  number,     ///< an attribute or a constant that scales is halved
  accumulator ///< a sum is made in its narrow type, or in none that is stated
};
llvm::StringRef name(Kind kind);

/// One change, by positions that mean the same in every clone of a module.
struct Mutation {
  Kind kind;
  unsigned op = 0; ///< in the order of a walk
  unsigned operand = 0;
  unsigned otherOp = 0, otherResult = 0; ///< a value, a state, or a number that the kind gives a meaning
};

/// All changes of the functions that compute gradients. `each`: how many other values an operand is exchanged for.
std::vector<Mutation> mutationsOf(mlir::ModuleOp module, unsigned each, uint64_t seed);
/// A clone with the change, or nothing where the change makes no module.
mlir::OwningOpRef<mlir::ModuleOp> apply(mlir::ModuleOp module, const Mutation &mutation);
/// For lists: the kind, and the op as it was.
std::string describe(mlir::ModuleOp module, const Mutation &mutation);

} // namespace mpt::mutants

#endif // MPT_TEST_MUTANTS_MUTANTS_H
