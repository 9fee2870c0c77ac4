// SPDX-License-Identifier: Apache-2.0
// Units of rows and lanes, and the loops over them.
#include "mpt/Lowering/Models/LaneUnits.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace mpt;

LaneUnits::LaneUnits(int64_t rows, int64_t lanes, int64_t chunk)
    : rows(rows), lanes(lanes), chunk(std::clamp<int64_t>(chunk, 1, std::max<int64_t>(lanes, 1))) {}

int64_t LaneUnits::extent() const { return rows * ceilDiv(lanes, chunk); }

void LaneUnits::walk(ElementEmitter &e, Value begin, Value end,
                     function_ref<void(const IndexExpr &, Lanes)> body) const {
  unsigned width = e.target.lanes();
  while (static_cast<int64_t>(width) > chunk)
    width /= 2;
  e.loop(begin, end, extent(), 1, {}, [&](const IndexExpr &unit, ValueRange) {
    auto [row, part] = e.space.divide(unit, ceilDiv(lanes, chunk));
    if (lanes == 1) {
      body(row, [](function_ref<void(const IndexExpr &)> each) { each(IndexExpr(0)); });
      return SmallVector<Value>();
    }
    Value low = e.index(e.space.scale(part, chunk));
    Value high =
        arith::MinUIOp::create(e.b, arith::AddIOp::create(e.b, low, e.indexConstant(chunk)), e.indexConstant(lanes));
    body(row, [&](function_ref<void(const IndexExpr &)> each) {
      e.vectorLoop(low, high, lanes, width < 4 ? 1 : width, each);
    });
    return SmallVector<Value>();
  });
}
