// SPDX-License-Identifier: Apache-2.0
// A GPU kernel in the making: queries of schedules for its fusion, buffers and device, and the launches they add.
#ifndef MPT_LOWERING_GPU_KERNELBUILDER_H
#define MPT_LOWERING_GPU_KERNELBUILDER_H

#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Lowering/Nest/KernelNest.h"

namespace mpt {

class GpuKernelBuilder : public KernelNest {
public:
  GpuKernelBuilder(mlir::OpBuilder &builder, FusionOp fusion, llvm::ArrayRef<mlir::MemRefType> inputs,
                   llvm::ArrayRef<mlir::MemRefType> outputs, llvm::StringRef name, const DeviceDescription &device,
                   llvm::ArrayRef<int64_t> alignments);

  /// The emitter and values of a launch's body. Code at scope 0 of the emitter is executed by all threads.
  struct Frame {
    ElementEmitter &e;
    mlir::func::FuncOp function;
    mlir::Value thread, block; ///< numbers in x
    int64_t sharedBytes = 0;
  };
  using Fill = llvm::function_ref<void(Frame &)>;
  /// Adds a launch of `grid` blocks of `block` threads, whose body `fill` emits. `schedule` names it in reports.
  void launch(llvm::StringRef schedule, std::array<int64_t, 3> grid, int64_t block, Fill fill);
  /// Adds a launch of one thread a unit, for work that a thread does in order. `fill` emits the units [begin, end), one
  /// or, behind the last, none.
  void launchUnits(llvm::StringRef schedule, int64_t units,
                   llvm::function_ref<void(Frame &, mlir::Value begin, mlir::Value end)> fill);

  /// Chooses KernelNest's lane, the first time that a schedule asks. Fails after reporting an op that has no loop form.
  mlir::LogicalResult findLane();
  /// An op without a loop form was reported: no schedule can make the kernel.
  bool hasFailed() const { return failed; }
  void fail() { failed = true; }

  // ---- layout
  /// Strides of a buffer of `shape`; row-major ones where no buffer has it.
  llvm::SmallVector<int64_t> stridesOf(llvm::ArrayRef<int64_t> shape) const;
  /// The axis of `shape` whose neighbours lie side by side; -1 where all extents are 1.
  int64_t fastestAxis(llvm::ArrayRef<int64_t> shape) const;
  /// Element sizes of the accesses that are contiguous along the lane.
  llvm::SmallVector<int64_t> contiguousBytes() const;
  /// Elements that one thread accesses at a time along a contiguous range of `extent`.
  unsigned vectorWidth(int64_t extent, llvm::ArrayRef<int64_t> elementBytes) const;
  /// Every buffer of whole rows of `length` elements has them side by side, and each begins at a multiple of `width`.
  bool rowsBeginAligned(int64_t length, unsigned width) const;
  /// Bytes that the address of argument `number` is a multiple of.
  int64_t alignmentOf(size_t number) const;

  // ---- outputs in the memory of inputs
  /// True when every use of `value` reads it at the index of the element that is being made, up to the fusion's outputs
  /// (or, with `reductionsToo`, to sums that are complete before anything is written).
  bool feedsAtOwnIndex(mlir::Value value, bool reductionsToo, unsigned depth = 0);
  /// Sets `mpt.in_place` of the first launch to the pairs for which feedsAtOwnIndex holds.
  void markInPlace(bool reductionsToo);

  mlir::OpBuilder &builder;
  llvm::StringRef name;
  const DeviceDescription &device;
  llvm::ArrayRef<int64_t> alignments;
  KernelTarget loops; ///< properties that one thread's code may assume
  GpuKernelInfo info;
  llvm::SmallVector<ReduceOp> reductions;

private:
  bool failed = false, probed = false;
};

} // namespace mpt

#endif // MPT_LOWERING_GPU_KERNELBUILDER_H
