// SPDX-License-Identifier: Apache-2.0
// Steps of a layer on buffers: calls on parts of a step, one after the other or as a loop over all steps.
#ifndef MPT_LIB_MEMORY_STEPLOOP_H
#define MPT_LIB_MEMORY_STEPLOOP_H

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Memory/Bufferization.h"

namespace mpt::memory {

/// A matrix (or a vector) of one step, and how far it lies from the one of the step before, in elements.
struct StepView {
  mlir::Value memref;
  int64_t advance = 0;
};
using StepViews = llvm::SmallVector<StepView>;

/// Makes calls for one step, and repeats them.
class StepLoop {
public:
  /// The arithmetic of a kernel on its inputs, in FP32.
  using Formula = llvm::function_ref<llvm::SmallVector<mlir::Value>(GraphBuilder &, mlir::ValueRange)>;

  StepLoop(mlir::Location loc, BufferizationState &state) : loc(loc), state(state) {}

  // ---- buffers: made outside of the loop

  /// The buffer of `tensor`, its last extent contiguous and nothing in it repeated.
  mlir::Value read(mlir::Value tensor);
  /// A buffer for the steps of one another [rows, columns], whose rows begin aligned.
  mlir::Value scratch(int64_t rows, int64_t columns, mlir::Type element);
  /// The `count` blocks of `columns` side by side in `memref` [rows, any].
  StepViews blocks(mlir::Value memref, int64_t columns, int64_t count, int64_t from = 0);
  /// The same of a memref [steps, rows, any], in step `first`, of which the next one is `by` steps further on.
  StepViews blocks(mlir::Value memref, int64_t first, int64_t by, int64_t columns, int64_t count, int64_t from = 0);

  // ---- calls

  /// One kernel; results are rounded to their buffers' types. It writes over an input only at the element it read.
  void launch(llvm::ArrayRef<StepView> inputs, llvm::ArrayRef<StepView> outputs, Formula formula);
  /// d = a b with sums in FP32; the weights b, or their transpose.
  void gemm(StepView a, mlir::Value b, bool transposed, StepView d);
  void fill(mlir::Value memref) { rt::ZeroOp::create(state.builder, loc, memref); }
  /// The calls that `body` makes, `count` times.
  void repeat(int64_t count, llvm::function_ref<void()> body);

private:
  mlir::Value use(const StepView &view);
  int64_t alignmentOf(const StepView &view) const;
  mlir::OpBuilder &calls() { return inside ? *inside : state.builder; }

  mlir::Location loc;
  BufferizationState &state;
  mlir::OpBuilder *inside = nullptr; ///< at the end of the loop's body, while it is made
  StepViews shown;                   ///< by the body's arguments
};

} // namespace mpt::memory

#endif // MPT_LIB_MEMORY_STEPLOOP_H
