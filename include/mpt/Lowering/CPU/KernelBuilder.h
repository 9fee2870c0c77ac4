// SPDX-License-Identifier: Apache-2.0
// The builder by which schedules make kernels of the CPU: the loops over units and vectors.
#ifndef MPT_LOWERING_CPU_KERNELBUILDER_H
#define MPT_LOWERING_CPU_KERNELBUILDER_H

#include "mpt/Lowering/CPU/Kernel.h"
#include "mpt/Lowering/Nest/KernelNest.h"

namespace mpt {

/// Units of work, independent of each other, and how many of them are worth a task of their own.
struct CpuUnits {
  int64_t extent = 0;
  int64_t grain = 1;
};

/// The kernel of one fusion while it is made: `function` of the inputs, the outputs, and the first and the last unit.
class CpuKernelBuilder : public KernelNest {
public:
  CpuKernelBuilder(FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs, llvm::ArrayRef<mlir::MemRefType> outputs,
                   const KernelTarget &target)
      : KernelNest(fusion, inputs, outputs), target(target) {}

  /// Chooses the axes that vectors walk, and their width. Fails after reporting an op without a loop form.
  bool findLane();
  bool hasFailed() const { return failed; }

  mlir::Value begin() { return function.getArguments().drop_back().back(); }
  mlir::Value end() { return function.getArguments().back(); }
  /// Emits one row's body; `laneGiven`: the lane's indices are in `at`.
  using RowEmitter = llvm::function_ref<void(llvm::SmallVector<IndexExpr> at, bool laneGiven)>;
  /// Loops over the units from begin() to end(), each a row or a piece of the lane, and over the lane in vectors.
  CpuUnits emitUnits(ElementEmitter &e, RowEmitter emitRow);

  const KernelTarget &target;
  mlir::func::FuncOp function;

private:
  void chooseVectors();

  int64_t chunk = 0; ///< elements of the lane group in one unit of work; 0: all
  bool failed = false, hasLane = false;
};

} // namespace mpt

#endif // MPT_LOWERING_CPU_KERNELBUILDER_H
