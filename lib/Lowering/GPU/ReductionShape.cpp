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
  busy = 2 * kernel.device.multiprocessors;
  fewLongRows = points < busy && extent > 16384;
  worthSharing = extent >= 64 && points * extent >= 8192;
  inTheWay = obstacle(kernel);
}

/// One pass makes sums over the same elements, and elements at their own index that wait for none of the sums.
StringRef ReductionShape::obstacle(GpuKernelBuilder &kernel) const {
  if (kernel.row.empty())
    return flat ? "" : "expected sums over the same elements, none of which waits for another";
  ReduceOp longest = main;
  ArrayRef<int64_t> space = shapeOf(longest.getX());
  for (ReduceOp op : kernel.reductions) {
    if (shapeOf(op.getX()) != space || op.getAxes() != longest.getAxes())
      return "expected sums over the same elements";
    for (ReduceOp other : kernel.reductions)
      if (other != op && dependsOn(other, op))
        return "expected sums that do not wait for each other";
  }
  bool served = llvm::all_of(kernel.yielded(), [&](Value output) {
    if (kernel.isRowLevel(output))
      return countOf(output) == countOf(longest.getY());
    return shapeOf(output) == space && llvm::none_of(kernel.reductions, [&](ReduceOp op) {
             return output.getDefiningOp() && dependsOn(output.getDefiningOp(), op);
           });
  });
  return served ? "" : "expected elements that wait for no sum";
}

bool mpt::addsTogether(ReduceOp op) {
  return accumulatorOf(op).type.isF32() && (op.getKind() == ReduceKind::sum || op.getKind() == ReduceKind::mean);
}
