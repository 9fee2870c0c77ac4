// SPDX-License-Identifier: Apache-2.0
// The ops that a value ends in: a walk over the users of an op, by the arithmetic that they do.
#ifndef MPT_INTERFACES_ARITHMETICWALK_H
#define MPT_INTERFACES_ARITHMETICWALK_H

#include "mpt/Interfaces/Arithmetic.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallPtrSet.h"

namespace mpt {

/// The answer of a user about the values that reach it.
enum class End {
  Further, ///< its users say it
  None,    ///< nothing
  One,     ///< they end as was asked
  All,     ///< and no other user can change that
  Never    ///< none may end here
};

/// Movements, sums and products have further users; of other arithmetic `otherwise` knows.
inline End endOf(Arithmetic arithmetic, llvm::function_ref<End(Arithmetic)> otherwise) {
  switch (arithmetic) {
  case Arithmetic::Moves:
  case Arithmetic::Chooses:
  case Arithmetic::Converts:
  case Arithmetic::Adds:
  case Arithmetic::Subtracts:
  case Arithmetic::Multiplies:
    return End::Further;
  default:
    return otherwise(arithmetic);
  }
}

/// True where the results of `op` end as was asked. Behind more than 64 ops nobody looks, and it does not.
inline bool endsIn(mlir::Operation *op, llvm::function_ref<Arithmetic(mlir::Operation *)> arithmeticOf,
                   llvm::function_ref<End(Arithmetic)> otherwise) {
  constexpr unsigned most = 64;
  llvm::SmallPtrSet<mlir::Operation *, 16> seen{op};
  llvm::SmallVector<mlir::Operation *> work{op};
  bool any = false;
  while (!work.empty())
    for (mlir::Operation *user : work.pop_back_val()->getUsers()) {
      End end = endOf(arithmeticOf(user), otherwise);
      if (end == End::All)
        return true;
      if (end == End::Never || seen.size() > most)
        return false;
      any |= end == End::One;
      if (end == End::Further && seen.insert(user).second)
        work.push_back(user);
    }
  return any;
}

} // namespace mpt

#endif // MPT_INTERFACES_ARITHMETICWALK_H
