// SPDX-License-Identifier: Apache-2.0
// Where casts are placed: which operands and results that the rules leave free become narrow, by the cost of casts.
#ifndef MPT_LIB_PRECISION_SOLVE_CASTPLACEMENT_H
#define MPT_LIB_PRECISION_SOLVE_CASTPLACEMENT_H

#include "mpt/Support/MinCut.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/MapVector.h"
#include <optional>
#include <vector>

namespace mpt {

/// The type of an op's value: narrow, wide, either (it takes any type without a cast), or the number of a free label.
using Label = int;
inline constexpr Label kNarrow = MinCut::kSource, kWide = MinCut::kSink, kEither = -1;
inline bool isFree(Label label) { return label > kWide; }

/// By label: true where it is narrow.
using Labelling = std::vector<bool>;

/// Labels of one op's operands and results, and the rule that gave them.
struct OpLabels {
  mlir::Operation *op = nullptr;
  llvm::SmallVector<Label, 4> operands, results;
  mlir::StringAttr rule;
  mlir::Type wideOperands, wideResults; ///< instead of f32 where they are wide, by measurement
  bool quantized = false;               ///< operands are then converted to the policy's compute and gradients types
};

/// Labels whose type is open.
struct FreeLabel {
  bool exact = false;    ///< the op computes the same in either type
  int64_t wideBytes = 0; ///< more bytes that its results take when they are wide
};

/// The traffic of a cast of a value.
struct ValueCost {
  int64_t bytes = 0;        ///< read and written
  bool hasWideCopy = false; ///< a stored parameter with a master: wide readers read that, and widen nothing
};

/// The objective of one cut: the sum over casts of `perByte` a byte and `perCast` a cast, with `weighsValues` also the
/// bytes of wide results, with `breaksTies` a unit for each exact op that is wide and each rounding op that is narrow.
struct CutWeights {
  int64_t perByte = 1, perCast = 0;
  bool weighsValues = false, breaksTies = false;
};

/// The problem: free labels, and values that cost a cast, once, where their producer and at least one user have
/// different labels. It is solved exactly by a minimum cut (MinCut.h) whose terminals are the two types.
class CastPlacement {
public:
  Label addFree(const FreeLabel &label);
  void produce(mlir::Value value, Label producer, const ValueCost &cost);
  void use(mlir::Value value, Label user);

  /// The labels that objectiveOf() is least for; among labels of one cost, the ones with the fewest narrow labels.
  Labelling cut(const CutWeights &weights) const;
  /// The objective that cut() minimizes, as CutWeights says.
  int64_t objectiveOf(const Labelling &narrow, const CutWeights &weights) const;
  size_t countFree() const { return free.size(); }
  /// That casts move.
  int64_t bytesOf(const Labelling &narrow) const;

private:
  struct CastValue {
    Label producer = kEither;
    ValueCost cost;
    llvm::SmallVector<Label, 2> users;
  };
  static bool isCast(const CastValue &value, const Labelling &narrow);
  /// Of one cast of `value`.
  static int64_t priceOf(const CastValue &value, const CutWeights &weights);

  std::vector<FreeLabel> free;
  llvm::MapVector<mlir::Value, CastValue> values;
};

} // namespace mpt

#endif // MPT_LIB_PRECISION_SOLVE_CASTPLACEMENT_H
