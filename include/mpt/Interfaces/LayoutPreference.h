// SPDX-License-Identifier: Apache-2.0
// Orders of dimensions in memory, and the notes of a choice of them while it asks the ops of a function.
#ifndef MPT_INTERFACES_LAYOUTPREFERENCE_H
#define MPT_INTERFACES_LAYOUTPREFERENCE_H

#include "mlir/IR/OpDefinition.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

namespace mpt {

/// A tensor's dimensions from the outermost to the innermost in memory.
using Order = llvm::SmallVector<int64_t, 6>;

inline Order rowMajor(int64_t rank) { return llvm::to_vector_of<int64_t, 6>(llvm::seq<int64_t>(rank)); }
/// N, S..., C: the order of convolutions' data.
inline Order channelsLast(int64_t rank) {
  Order order{0};
  order.append(llvm::to_vector_of<int64_t>(llvm::seq<int64_t>(2, rank)));
  order.push_back(1);
  return order;
}

/// The order of each value that its readers want, and the one that its maker decided.
class LayoutChoice {
public:
  /// How much a reader gains: `View`, a reshape that becomes a view; `Call`, a library call that takes no other order.
  /// The stronger wish wins, of equal ones the first that was noted.
  enum class Strength { View, Call };
  struct Wish {
    Order order;
    Strength strength;
  };

  void wish(mlir::Value value, Order order, Strength strength) {
    auto [it, isNew] = wishes.try_emplace(value, Wish{order, strength});
    if (!isNew && it->second.strength < strength)
      it->second = {std::move(order), strength};
  }
  /// The strongest wish for `value`, if any.
  std::optional<Wish> wishFor(mlir::Value value) const {
    auto it = wishes.find(value);
    return it == wishes.end() ? std::nullopt : std::optional(it->second);
  }
  /// Operand `to` is wanted as result `from` is, if that is wanted at least as strongly as `least`.
  void passOn(mlir::Value from, mlir::Value to, Strength least) {
    if (std::optional<Wish> found = wishFor(from); found && found->strength >= least)
      wish(to, found->order, found->strength);
  }

  void give(mlir::Value value, Order order) { given[value] = std::move(order); }
  /// The order that `value`'s maker decided on, if it did.
  std::optional<Order> orderOf(mlir::Value value) const {
    auto it = given.find(value);
    return it == given.end() ? std::nullopt : std::optional(it->second);
  }

private:
  llvm::DenseMap<mlir::Value, Wish> wishes;
  llvm::DenseMap<mlir::Value, Order> given;
};

} // namespace mpt

#include "mpt/Interfaces/LayoutPreference.h.inc"

#endif // MPT_INTERFACES_LAYOUTPREFERENCE_H
