// SPDX-License-Identifier: Apache-2.0
// Which ops one kernel can compute: see fusion-form's description.
#ifndef MPT_LIB_FUSION_KERNELRULES_H
#define MPT_LIB_FUSION_KERNELRULES_H

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Fusion/KernelCapabilities.h"

#include "llvm/ADT/DenseSet.h"

namespace mpt {

class KernelRules {
public:
  using OpSet = llvm::DenseSet<mlir::Operation *>;
  static constexpr size_t maxOps = 256; ///< of a group: bounds compile time and register pressure
  static constexpr size_t maxTensors =
      128; ///< that it reads and writes: more share no pass, and pointers fill registers
  explicit KernelRules(const KernelCapabilities &kernels) : kernels(kernels) {}

  /// Why one kernel cannot compute `ops`, in the order of the block, whose set `members` is. Empty where it can.
  llvm::StringRef whyNot(llvm::ArrayRef<mlir::Operation *> ops, const OpSet &members) const;

  /// Elements that sums of their rows add up, and that ops behind the sums read (RowGradients.h).
  OpSet rowTerms;

private:
  /// The iteration space of a group, and the rows of its reduction.
  struct Space {
    llvm::ArrayRef<int64_t> shape, rows;
    llvm::ArrayRef<int64_t> axes; ///< of the reduction; empty without one
    bool hasReduction = false;
    bool wholeRows = false; ///< sums along the contiguous axes, for at least 8 results
    int64_t count = 1;      ///< points
  };
  /// Scalar arithmetic of all kinds together.
  enum class Scalars : uint8_t { No, Fits, TooManySums };
  Scalars scalarsOf(llvm::ArrayRef<mlir::Operation *> ops, const OpSet &members) const;
  Space spaceOf(llvm::ArrayRef<mlir::Operation *> ops) const;
  static size_t tensorsOf(llvm::ArrayRef<mlir::Operation *> ops, const OpSet &members);
  llvm::StringRef whyNotResult(mlir::Operation *op, mlir::Value result, const Space &space, const OpSet &members) const;
  llvm::StringRef whyNotOperand(mlir::OpOperand &operand, const Space &space, const OpSet &members) const;

  const KernelCapabilities kernels;
};

} // namespace mpt

#endif // MPT_LIB_FUSION_KERNELRULES_H
