// SPDX-License-Identifier: Apache-2.0
// Schedules of fusions on a grid of threads.
#ifndef MPT_LIB_LOWERING_GPU_KERNELBUILDER_H
#define MPT_LIB_LOWERING_GPU_KERNELBUILDER_H

#include "Team.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Lowering/Models/Scatter.h"
#include "mpt/Lowering/Nest/KernelNest.h"

namespace mpt {

struct BundlePlan;

class GpuKernelBuilder : KernelNest {
public:
  GpuKernelBuilder(mlir::OpBuilder &builder, FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
                   llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name, const GpuTarget &target,
                   llvm::ArrayRef<int64_t> alignments);
  llvm::FailureOr<GpuKernelInfo> build();

private:
  /// What a launch's body is built with. Emission at scope 0 of the emitter is executed by all threads.
  struct Frame {
    ElementEmitter &e;
    mlir::func::FuncOp function;
    mlir::Value thread, block; ///< numbers in x
    int64_t sharedBytes = 0;
  };
  using Fill = llvm::function_ref<void(Frame &)>;
  void launch(llvm::StringRef schedule, std::array<int64_t, 3> grid, int64_t block, Fill fill);

  // ---- schedules
  void pointwise();
  void rows(int64_t extent, llvm::StringRef schedule, bool partial);
  void storeKeptRow(Frame &frame, Team &team, llvm::ArrayRef<int64_t> order, llvm::SmallVector<IndexExpr> at,
                    mlir::Value used, Team writer);
  void columns();
  bool columnsWithElements(ReduceOp main);
  mlir::Value guardOfReductions();
  bool transposes();
  bool bundle();
  void bundleElements(BundlePlan &plan);
  void bundleSums(BundlePlan &plan);
  void scatter(const ScatterForm &form);
  bool canLink(const ScatterForm &form);
  void scatterByLinks(const ScatterForm &form);

  // ---- helpers
  /// Vectors of elements that one thread reads at a time along a contiguous range of `extent`.
  unsigned vectorWidth(int64_t extent, llvm::ArrayRef<int64_t> elementBytes) const;
  llvm::SmallVector<int64_t> contiguousBytes();
  /// The axis of `shape` whose neighbours lie side by side.
  int64_t fastestAxis(llvm::ArrayRef<int64_t> shape);
  llvm::SmallVector<int64_t> stridesOf(llvm::ArrayRef<int64_t> shape);
  bool feedsAtOwnIndex(mlir::Value value, bool reductionsToo, unsigned depth = 0);
  void markInPlace(bool reductionsToo);
  mlir::Value partialBuffer(Frame &frame, unsigned number);

  mlir::OpBuilder &builder;
  llvm::StringRef name;
  const GpuTarget &target;
  llvm::ArrayRef<int64_t> alignments;
  KernelTarget loops;
  GpuKernelInfo info;
  llvm::SmallVector<ReduceOp> reductions;
  int64_t slices = 1; ///< of columns: sums a result is made of
  bool failed = false;
};

} // namespace mpt

#endif // MPT_LIB_LOWERING_GPU_KERNELBUILDER_H
