// SPDX-License-Identifier: Apache-2.0
// Loops over small boxes of points.
#include "Boxes.h"

using namespace mlir;
using namespace mpt;

SmallVector<Value> mpt::overBox(ElementEmitter &e, ArrayRef<int64_t> extents, SmallVector<IndexExpr> at,
                                ValueRange carried, BoxBody body) {
  int64_t count = 1;
  for (int64_t extent : extents)
    count *= extent;
  if (at.size() == extents.size())
    return body(at, carried);
  int64_t extent = extents[at.size()];
  at.push_back(0);
  if (count <= 16) {
    SmallVector<Value> values(carried);
    for (int64_t i = 0; i < extent; ++i) {
      at.back() = IndexExpr(i);
      values = overBox(e, extents, at, values, body);
    }
    return values;
  }
  return e.loop(e.indexConstant(0), e.indexConstant(extent), extent, 1, carried,
                [&](const IndexExpr &i, ValueRange values) {
                  at.back() = i;
                  return overBox(e, extents, at, values, body);
                });
}
