// SPDX-License-Identifier: Apache-2.0
// Whether two values of a graph are the same function of some others, found by computing both.
#ifndef MPT_EVALUATION_SAMEFUNCTION_H
#define MPT_EVALUATION_SAMEFUNCTION_H

#include "mpt/Evaluation/Frame.h"

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SetVector.h"
#include <list>

namespace mpt {

/// True for arithmetic on floats alone, whose result is smooth, or whose pieces meet where an operand is zero or two
/// are equal. Such functions are the same everywhere where they agree at random points of several magnitudes.
/// Composites are none: they are what arithmetic is compared with.
bool isComparable(mlir::Operation *op);

/// The comparable ops that compute a value from `given` ones and constants, in the order of their block.
struct Cone {
  /// At most `mostOps` of them, those nearest to `value`.
  Cone(mlir::Value value, const llvm::DenseSet<mlir::Value> &given, size_t mostOps = 64);

  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SetVector<mlir::Value> leaves; ///< what is computed otherwise
};

/// Float values, computed in FP64 from random ones.
class RandomPoints {
public:
  /// Stops computing after `budget` elements.
  explicit RandomPoints(int64_t budget) : budget(budget) {}

  /// Draws the values of a new set of arguments, at points of magnitude 1, 4, 2^-8 and 2^-20, and forgets all others.
  void draw(llvm::ArrayRef<mlir::Value> arguments);
  /// Computes the results of `ops`, in order, whose other operands are known. False where one cannot be computed.
  bool compute(llvm::ArrayRef<mlir::Operation *> ops);
  /// To be called before `op` is erased: another may take its place in memory.
  void forget(mlir::Operation *op) {
    for (mlir::Value result : op->getResults())
      known.erase(result);
  }
  /// True where `a` and `b` have as many elements and differ at no point by more than FP32 rounds: 1e-6 of the largest.
  bool agree(mlir::Value a, mlir::Value b) const;

private:
  int64_t budget;
  llvm::DenseSet<mlir::Value> known;
  EvaluationState state;
  std::list<InterpreterFrame> frames; ///< one a point
};

} // namespace mpt

#endif // MPT_EVALUATION_SAMEFUNCTION_H
