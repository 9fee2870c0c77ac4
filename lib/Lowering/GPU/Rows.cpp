// SPDX-License-Identifier: Apache-2.0
// Schedule: sums along the contiguous axis, a team of 1 to 512 threads a row, in one pass where registers hold it.
#include "ReductionShape.h"
#include "RowLaunch.h"
#include "Schedules.h"

using namespace mlir;
using namespace mpt;

namespace {

class Rows : public GpuSchedule {
public:
  Rows() : GpuSchedule("rows") {}

  LogicalResult match(GpuKernelBuilder &kernel) override {
    if (kernel.reductions.empty())
      return refuse(kernel, "expected a reduction");
    if (failed(kernel.findLane()))
      return failure();
    ReductionShape shape(kernel);
    extent = shape.extent;
    if (!shape.alongRow)
      return refuse(kernel, "expected sums along the contiguous axis");
    if (shape.flat && shape.fewLongRows)
      return refuse(kernel, "expected at least " + Twine(shape.busy) + " rows of " + Twine(extent) + " elements, got " +
                                Twine(shape.points));
    return success();
  }

  void emit(GpuKernelBuilder &kernel) override { RowLaunch(kernel, extent).emit(name); }

private:
  int64_t extent = 0; ///< elements of a row
};

} // namespace

std::unique_ptr<GpuSchedule> mpt::makeRowsSchedule() { return std::make_unique<Rows>(); }
