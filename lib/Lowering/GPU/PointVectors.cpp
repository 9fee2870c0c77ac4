// SPDX-License-Identifier: Apache-2.0
// Widths of a thread's points.
#include "PointVectors.h"

#include "mpt/Lowering/Emission/Reductions.h"

using namespace mlir;
using namespace mpt;

PointVectors::PointVectors(const GpuKernelBuilder &kernel) {
  if (!kernel.laneKept()) {
    outer = kernel.extentOf(kernel.kept);
    return;
  }
  lanes = kernel.extentOf(kernel.lane);
  outer = kernel.extentOf(kernel.kept) / lanes;
  // Sums of one thread, which FP64 often takes, keep as many values as long fusions do; the largest of 16 bits do not.
  const unsigned most = llvm::all_of(kernel.reductions, narrowExtreme) ? 8 : 4;
  auto widthOf = [&](int64_t extent) { return std::min(kernel.vectorWidth(extent, kernel.contiguousBytes()), most); };
  vector = widthOf(lanes);
  // A flat range keeps its wide vectors and leaves the rest to one more thread; so does each long row, where memory
  // begins it at a multiple of them.
  unsigned widest = widthOf(0);
  ragged =
      vector < widest &&
      (outer == 1 ? lanes >= 256 : kernel.lane.size() == 1 && lanes >= 512 && kernel.rowsBeginAligned(lanes, widest));
  if (ragged)
    vector = widest;
}
