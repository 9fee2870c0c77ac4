// SPDX-License-Identifier: Apache-2.0
// Lengths and axes of a kernel's reductions.
#include "ReductionShape.h"

#include "mpt/Dialect/MPT/TensorTypes.h"
#include "mpt/Lowering/Emission/Reductions.h"

using namespace mlir;
using namespace mpt;

ReductionShape::ReductionShape(GpuKernelBuilder &kernel) : main(kernel.reductions.front()) {
  for (ReduceOp op : kernel.reductions)
    if (reducedExtent(op) > reducedExtent(main))
      main = op;
  extent = reducedExtent(main);
  points = kernel.extentOf(kernel.kept);
  ArrayRef<int64_t> space = shapeOf(main.getX());
  alongRow = llvm::is_contained(main.getAxes(), kernel.fastestAxis(space)) || extent == 1;
  flat = kernel.row.empty() && llvm::all_of(kernel.reductions, [&](ReduceOp op) {
           return shapeOf(op.getX()) == space && op.getAxes() == main.getAxes() && countOf(op.getY()) == points &&
                  llvm::none_of(kernel.reductions, [&](ReduceOp other) { return other != op && dependsOn(other, op); });
         });
  busy = 2 * kernel.target.multiprocessors;
  fewLongRows = points < busy && extent > 16384;
  worthSharing = extent >= 64 && points * extent >= 8192;
}
