// SPDX-License-Identifier: Apache-2.0
// Meanings of values: positions, counts, tables and raw inputs, how large they may be, and where they must be exact.
#ifndef MPT_PRECISION_MEANING_H
#define MPT_PRECISION_MEANING_H

#include "mpt/Interfaces/Arithmetic.h"
#include "mpt/Precision/ConstantReader.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace mpt {

/// Known facts about a value's elements. The default is an activation's: nothing is known.
struct Meaning {
  static constexpr double kUnbounded = std::numeric_limits<double>::infinity();

  bool bounded = false; ///< `low` and `high` follow from integers, constants and extents; both may be infinite
  double low = -kUnbounded, high = kUnbounded;
  /// Of a count: elements are multiples of one unit, at most so many; 0 where nothing was counted.
  double steps = 0;
  bool integer = false;    ///< every element is a whole number
  bool positional = false; ///< made of integers and constants alone
  bool direct = false;     ///< made of the function's inputs, of positions and constants alone, without a GEMM between
  bool weight = false;     ///< elements of a trained parameter
  bool unscaled = false;   ///< of the magnitude of the function's inputs, which only the user knows
  bool large = false;      ///< an exponential or a power of such a magnitude
  double gain = 1;         ///< constant factors since the magnitude was last of order one
  double size = 1;         ///< the largest magnitude that factors in the file and sums make of order one
  double least = 0;        ///< of a constant over a count: the least magnitude; 0 where there is no such quotient

  bool constant = false;     ///< its elements are in the file
  bool filter = false;       ///< of a constant: values that nobody trains, as of a Fourier basis or a blur
  double smallest = 0;       ///< of a constant, or of a value with it as floor or epsilon: the least magnitude but zero
  int64_t elements = 0;      ///< of a constant, before it was repeated
  double rootMeanSquare = 0; ///< of a constant's elements, or a parameter's first ones; 0 where it is not known

  bool counted() const { return steps > 0; }
  bool isFilter() const { return constant && filter; }
  double magnitude() const { return bounded ? std::max(std::abs(low), std::abs(high)) : kUnbounded; }
  double largest() const { return bounded ? magnitude() : size; }
};

/// The meanings of a function's values, and which of its ops must stay wide for them. One walk in the order of
/// definitions finds the meanings; a walk back from lookups, sample positions, angles and comparisons finds the ops
/// that make values which must be exact.
class Meanings {
public:
  /// The contents of a constant or of a read of a state.
  struct Contents {
    bool isWeight = false;     ///< of a trained parameter
    mlir::Attribute attribute; ///< elements or a number, of a parameter the first ones; null for other contents
  };
  using ContentsOf = llvm::function_ref<Contents(mlir::Operation *)>;
  /// Powers taken in `wide`, which is so anyway, ask nothing of their operands.
  Meanings(mlir::func::FuncOp function, ContentsOf contentsOf, ConstantReader &reader,
           const llvm::DenseSet<mlir::Operation *> &wide);

  /// Why `op` must not compute in `type`, a rule as reports print it; empty where the meanings of its operands and
  /// results allow it. Where its range `isMeasured`, only exactness counts.
  std::string whyWide(mlir::Operation *op, mlir::FloatType type, bool isMeasured = false) const;
  /// Why a reader of `value`, a constant, needs it as it is; empty where all take it rounded.
  std::string whyRead(mlir::Value value, mlir::FloatType type) const;
  /// True where an operand counts farther than `type` holds exactly.
  bool countsBeyond(mlir::Operation *op, mlir::FloatType type) const;
  /// True where all that meets in `op` comes from outside or is a table.
  bool isDirect(mlir::Operation *op) const;
  const Meaning &of(mlir::Value value) const;

private:
  void visit(mlir::Operation *op, ContentsOf contentsOf, ConstantReader &reader);
  std::string whyReads(mlir::Operation *op, unsigned index, mlir::FloatType type, bool isMeasured) const;
  bool cancels(mlir::Operation *op) const;
  bool isUnfit(mlir::Operation *op, const Meaning &constant, bool isMatrix, mlir::FloatType type) const;
  void findExactOps(mlir::func::FuncOp function, const llvm::DenseSet<mlir::Operation *> &wide);
  void keepIndices(mlir::Operation *op);
  void keepPowers(mlir::Operation *op);
  void keepIndex(mlir::Value value, llvm::StringRef why);
  void keepTest(mlir::Operation *op, llvm::DenseMap<mlir::Operation *, bool> &positions);
  void keepExpanded(mlir::Operation *op);
  bool keepProducts(mlir::Value value, llvm::StringRef why, llvm::DenseMap<mlir::Operation *, bool> &seen);
  bool isLookedUp(mlir::Value indices) const;
  bool isTable(mlir::Value value) const;
  bool keepPosition(mlir::Value value, llvm::StringRef why, llvm::DenseMap<mlir::Operation *, bool> &seen);

  llvm::DenseMap<mlir::Value, Meaning> meanings;
  llvm::DenseMap<mlir::Operation *, llvm::StringRef> expanded; ///< ops that make the operands of powers
  llvm::DenseMap<mlir::Operation *, llvm::StringRef> exactOps; ///< that make the exact values, with the reason
};

} // namespace mpt

#endif // MPT_PRECISION_MEANING_H
