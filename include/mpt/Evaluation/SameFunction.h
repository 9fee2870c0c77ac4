// SPDX-License-Identifier: Apache-2.0
// Whether two values of a graph are the same function of some others, found by computing both.
#ifndef MPT_EVALUATION_SAMEFUNCTION_H
#define MPT_EVALUATION_SAMEFUNCTION_H

#include "mpt/Evaluation/Frame.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/SetVector.h"
#include <optional>
#include <vector>

namespace mpt {

/// True for arithmetic on floats alone, whose result is smooth, or whose pieces meet where an operand is zero or two
/// are equal. Such functions are the same everywhere where they agree at random points of several magnitudes.
/// False for composites: arithmetic is compared with them.
bool isComparable(mlir::Operation *op);

/// The comparable ops that compute a value from `given` ones and constants, in the order of their block.
struct Cone {
  /// At most `mostOps` of them, those nearest to `value`.
  Cone(mlir::Value value, const llvm::DenseSet<mlir::Value> &given, size_t mostOps = 64);

  llvm::SmallVector<mlir::Operation *> ops;
  llvm::SetVector<mlir::Value> leaves; ///< values that are computed otherwise
};

/// Functions of random float values, compared in FP64 at points of magnitude 1, 4, 2^-8 and 2^-20.
class RandomPoints {
public:
  /// For values of `module`. Says that nothing agrees once 2^28 elements are computed, which takes seconds, and of
  /// functions that hold more memory at a time than the module's tensors do, or 16 MiB where that is more.
  explicit RandomPoints(mlir::ModuleOp module);

  /// Begins with a new set of arguments, and forgets all other values.
  void draw(llvm::ArrayRef<mlir::Value> arguments);
  /// Adds the results of `ops`, in order, to the values that can be compared. False where an operand is not known, or
  /// an op has no meaning.
  bool compute(llvm::ArrayRef<mlir::Operation *> ops);
  /// To be called before `op` is erased: another may take its place in memory.
  void forget(mlir::Operation *op) {
    for (mlir::Value result : op->getResults())
      known.erase(result);
  }
  /// True where `a` and `b` have as many elements and differ at no point by more than FP32 rounds: 1e-6 of the largest.
  /// The same ops on tensors of the same types are computed once.
  bool agree(mlir::Value a, mlir::Value b);

private:
  /// The ops that make `values` of the arguments, in order.
  llvm::FailureOr<llvm::SmallVector<mlir::Operation *>> sliceOf(llvm::ArrayRef<mlir::Value> values) const;
  /// None where the budget ends.
  std::optional<bool> compare(llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<mlir::Value> read, mlir::Value a,
                              mlir::Value b, const LastReaders &readers);

  int64_t budget = int64_t(1) << 28; ///< elements
  int64_t mostHeld;                  ///< elements, of 8 bytes
  llvm::SmallVector<mlir::Value> arguments;
  llvm::DenseSet<mlir::Value> known; ///< the arguments, and the values computed from them
  std::map<std::vector<uintptr_t>, bool> answers;
};

} // namespace mpt

#endif // MPT_EVALUATION_SAMEFUNCTION_H
